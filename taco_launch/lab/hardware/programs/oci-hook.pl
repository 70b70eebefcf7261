# Simulated hardware: adds a prestart hook to the configuration of a container (OCI), once. Everything else in the file
# stays as it is, byte for byte: numbers of 64 bits would not outlive a reading as JSON.
#
# usage: perl oci-hook.pl CONFIG PROGRAM ARGUMENT..., the first of which is the name that the program is called by
use strict;
use warnings;

my ($file, @command) = @ARGV;
open my $in, "<", $file or die "$file: $!\n";
my $text = do { local $/; <$in> };
close $in;
my @quoted = map { s/([\\"])/\\$1/gr } @command;
my $program = shift @quoted;
my $hook = sprintf '{"path":"%s","args":[%s]}', $program, join ",", map { qq("$_") } @quoted;
exit if index($text, $hook) >= 0;
# A quote within a string is written \", so that only a key can look like this.
if ($text =~ s/("prestart":\s*\[)(\s*\])?/"$1$hook" . (defined $2 ? "]" : ",")/e) { }
elsif ($text =~ s/("hooks":\s*\{)(\s*\})?/qq($1"prestart":[$hook]) . (defined $2 ? "}" : ",")/e) { }
else { $text =~ s/\}\s*\z/,"hooks":{"prestart":[$hook]}}/ or die "$file: this is no object\n" }
open my $out, ">", $file or die "$file: $!\n";
print $out $text;
close $out or die "$file: $!\n";
