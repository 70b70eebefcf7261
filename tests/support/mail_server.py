"""A mail server of this machine that keeps what it gets, and has no mailbox of the name nobody."""

import contextlib
import socketserver
import threading
from collections.abc import Iterator

Mail = tuple[str, list[str], str]


@contextlib.contextmanager
def mail_server() -> Iterator[tuple[int, list[Mail]]]:
    """Serve SMTP (RFC 5321) on a port of 127.0.0.1; yield the port and the mails: (sender, recipients, text)."""
    mails: list[Mail] = []

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            sender, to = "", list[str]()
            self.say("220 ready")
            while line := self.rfile.readline().decode().strip():
                verb, _space, rest = line.partition(" ")
                mailbox = rest.partition("<")[2].partition(">")[0]
                if verb.upper() == "MAIL":
                    sender, to = mailbox, []
                elif verb.upper() == "RCPT" and mailbox.startswith("nobody"):
                    self.say("550 no such mailbox")
                    continue
                elif verb.upper() == "RCPT":
                    to.append(mailbox)
                elif verb.upper() == "DATA":
                    self.say("354 go ahead")
                    lines = iter(lambda: self.rfile.readline().decode().rstrip("\r\n"), ".")
                    mails.append((sender, to, "\n".join(lines)))
                elif verb.upper() == "QUIT":
                    self.say("221 bye")
                    return
                self.say("250 ok")

        def say(self, words: str) -> None:
            self.wfile.write(f"{words}\r\n".encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], mails
        server.shutdown()
