# Simulated hardware: lets /proc/net lead to a folder that has its files and `bonding` besides.
#
# /proc/net is a link to self/net, where nothing can be made, and mount(8) follows links. So a link of ours is bound
# over that link itself, each opened as a path (O_PATH | O_NOFOLLOW); 165 is mount(2) on x86_64, 40 on aarch64.
use strict;
use warnings;
use Fcntl;

my ($folder) = @ARGV;
for my $name (map { m{([^/]+)$} } glob "/proc/self/net/*") {
    symlink "/proc/self/net/$name", "$folder/$name" unless -l "$folder/$name";
}
my $link = "$folder.link";
symlink $folder, $link or die "$link: $!\n";
my ($path, $nofollow, $bind) = (oct "010000000", Fcntl::O_NOFOLLOW(), 0x1000);
sysopen my $ours, $link, $path | $nofollow or die "$link: $!\n";
sysopen my $theirs, "/proc/net", $path | $nofollow or die "/proc/net: $!\n";
my ($from, $to) = map { "/proc/self/fd/" . fileno $_ } $ours, $theirs;
my $number = `uname -m` =~ /aarch64/ ? 40 : 165;
syscall($number, $from, $to, 0, $bind, 0) == 0 or die "bind over /proc/net: $!\n";
