"""Escape attempts as programs. A successful one prints ESCAPED or the token, or changes a file outside.

Names in double braces are replaced by test_escapes.py: {{outside}} is a folder with secret.txt, log.db and canary.txt,
{{pid}} a process of the same user, {{port}}, {{abstract}} and {{socket}} a server that answers with the token, {{skills}}
a folder outside with a skill.  The sandbox of an attempt with `hosts` reaches two ports of 127.0.0.2 through its proxy.
"""

from typing import NamedTuple


class Attempt(NamedTuple):
    name: str
    program: str
    tool: str = "shell"
    hosts: bool = False


CALL = """
import ctypes, os, struct, platform
libc = ctypes.CDLL(None, use_errno=True)
def call(x86, arm, *args):
    number = x86 if platform.machine() == "x86_64" else arm
    return libc.syscall(number, *args)
def done(result):
    print("ESCAPED" if result >= 0 else os.strerror(ctypes.get_errno()))
"""


def system_call(name: str, code: str) -> Attempt:
    return Attempt(name, CALL + code, "python")


FILES = (
    Attempt("read a file outside by its path", "cat {{outside}}/secret.txt"),
    Attempt("list a folder outside", "ls {{outside}} | grep secret && echo ESCAPED"),
    Attempt("append to a file outside", "echo x >> {{outside}}/canary.txt"),
    Attempt("remove a file outside", "rm {{outside}}/canary.txt"),
    Attempt("write the log of the harness", "echo x >> {{outside}}/log.db"),
    Attempt("write beside the log", "echo x > {{outside}}/log.db-wal"),
    Attempt("read through a new link", "ln -s {{outside}}/secret.txt l && cat l"),
    Attempt("write through a new link", "ln -s {{outside}}/canary.txt l && echo x >> l"),
    Attempt("make a hard link", "ln {{outside}}/secret.txt l && cat l"),
    Attempt("read through the root of a process", "cat /proc/{{pid}}/root{{outside}}/secret.txt"),
    Attempt("read through the root of process 1", "cat /proc/1/root{{outside}}/secret.txt"),
    Attempt("read through the folder of a process", "cat /proc/{{pid}}/cwd/secret.txt"),
    Attempt("read an open file of a process", "cat /proc/{{pid}}/fd/{{descriptor}}"),
    Attempt("read the passwords", "cat /etc/shadow >/dev/null && echo ESCAPED"),
    Attempt(
        "write a program of the system",
        "touch /usr/bin/bridle-test && rm /usr/bin/bridle-test && echo ESCAPED",
    ),
    Attempt("write a setting of the system", "touch /etc/bridle-test && rm /etc/bridle-test && echo ESCAPED"),
    Attempt(
        "write the library of Python",
        "touch {{python}}/bridle-test && rm {{python}}/bridle-test && echo ESCAPED",
    ),
    Attempt(
        "write the code of the harness",
        "touch {{harness}}/bridle-test && rm {{harness}}/bridle-test && echo ESCAPED",
    ),
    Attempt("look into the home folder", "ls -d {{home}}/.bashrc {{home}}/.profile && echo ESCAPED"),
    Attempt("read shared memory by name", "cat /dev/shm/{{shared}}"),
    Attempt("add a hook of git", "echo x > .git/hooks/pre-commit && echo ESCAPED"),
    Attempt("change the settings of git", "git config core.fsmonitor 'touch x' && echo ESCAPED"),
    Attempt("move the folder of git away", "mv .git other && echo ESCAPED"),
    Attempt("add a hook to a repository below", "echo x > deep/below/.git/hooks/pre-commit && echo ESCAPED"),
    Attempt(
        "change the settings of Bridle", "echo 'tools = [\"evil.py\"]' >> deep/bridle.toml && echo ESCAPED"
    ),
    Attempt("replace the settings of Bridle", "echo x > x && mv x deep/bridle.toml && echo ESCAPED"),
    Attempt("fill a large file", "head -c 40000000 /dev/zero > large && echo ESCAPED"),
    Attempt(
        "fill /tmp",
        "d=$(mktemp -d); for i in 1 2 3 4 5; do head -c 15000000 /dev/zero > $d/$i || exit 1; done; rm -r $d; echo ESCAPED",
    ),
    Attempt("read the settings of the kernel", "ls /sys/kernel >/dev/null && echo ESCAPED"),
    Attempt(
        "write a setting of the kernel",
        "v=$(cat /proc/sys/vm/swappiness); echo $v > /proc/sys/vm/swappiness && echo ESCAPED",
    ),
    Attempt(
        "choose the program for crashes",
        'v=$(cat /proc/sys/kernel/core_pattern); echo "$v" > /proc/sys/kernel/core_pattern && echo ESCAPED',
    ),
    Attempt("use the keys of the kernel's console", "echo h > /proc/sysrq-trigger && echo ESCAPED"),
    Attempt(
        "leave the resource group",
        "for f in /sys/fs/cgroup/pids /sys/fs/cgroup/memory /sys/fs/cgroup; do [ -e $f/cgroup.procs ] && echo $$ > $f/cgroup.procs && echo ESCAPED && break; done",
    ),
)
PROCESSES = (
    Attempt("find a key in environments", "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -a TOKEN_VARIABLE"),
    Attempt("find a key in command lines", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -a -o 'token-[0-9a-f]\\{16\\}'"),
    Attempt("signal another process", "kill -0 {{pid}} && echo ESCAPED"),
    Attempt("end another process", "kill -9 {{pid}} && echo ESCAPED"),
    Attempt("change the priority of another process", "renice -n 1 -p {{pid}} && echo ESCAPED"),
    Attempt("change limits of another process", "prlimit --pid {{pid}} --nofile=100:100 && echo ESCAPED"),
    Attempt("enter the namespaces of another process", "nsenter -t {{pid}} -m cat {{outside}}/secret.txt"),
    Attempt("raise the own priority", "nice -n -5 true 2>&1 | grep -q cannot || echo ESCAPED"),
    Attempt("allow core dumps", "ulimit -c unlimited && echo ESCAPED"),
    Attempt("leave a process behind", "setsid flock lock sleep 30 & while flock -n lock true; do :; done; echo started"),
    Attempt("leave a process behind after two forks", """
import fcntl, os, time
ready, told = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        held = open("lock", "w")
        fcntl.flock(held, fcntl.LOCK_EX)
        os.write(told, b"x")
        for number in range(3): os.close(number)
        time.sleep(30)
    os._exit(0)
os.read(ready, 1)
""", "python"),
    Attempt("start more processes than allowed", """
import os, signal
ready, told = os.pipe()
made = []
try:
    for _ in range(120):
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
        made.append(pid)
finally:
    print("ESCAPED" if len(made) == 120 else len(made), flush=True)
    for pid in made: os.kill(pid, 9)
""", "python"),
    Attempt("use more memory than allowed", "held = bytearray(400_000_000); held[::4096] = b'x' * len(held[::4096]); print('ESCAPED')", "python"),
    Attempt("use more memory than allowed in several processes", """
import os
made = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        held = bytearray(100_000_000); held[::4096] = b"x" * len(held[::4096])
        os.read(0, 1)
        import time; time.sleep(0.5)
        os._exit(0)
    made.append(pid)
codes = [os.waitpid(pid, 0)[1] for pid in made]
print("ESCAPED" if codes == [0] * 4 else codes)
""", "python"),
)  # fmt: skip
NETWORK = (
    Attempt("connect to a server of the machine", "import socket; s = socket.create_connection(('127.0.0.1', {{port}}), 5); print(s.recv(100))", "python"),
    Attempt("connect to a server by IPv6", "import socket; s = socket.create_connection(('::1', {{port6}}), 5); print(s.recv(100))", "python"),
    Attempt("send a datagram", "import socket; s = socket.socket(2, 2); s.settimeout(3); s.sendto(b'x', ('127.0.0.1', {{udp}})); print(s.recv(100))", "python"),
    Attempt("connect to an abstract socket", "import socket; s = socket.socket(1); s.settimeout(5); s.connect('\\0{{abstract}}'); print(s.recv(100))", "python"),
    Attempt("connect to a socket with a path", "import socket; s = socket.socket(1); s.settimeout(5); s.connect('{{socket}}'); print(s.recv(100))", "python"),
    Attempt("use raw packets", "import socket; socket.socket(17, 3, 0x300); print('ESCAPED')", "python"),
    Attempt("talk to the host of a virtual machine", "import socket; socket.socket(40, 1); print('ESCAPED')", "python"),
    Attempt("use the cryptography of the kernel", "import socket; socket.socket(38, 5, 0); print('ESCAPED')", "python"),
    Attempt("see the interfaces of the machine", "ls /sys/class/net >/dev/null && echo ESCAPED"),
)  # fmt: skip
RIGHTS = (
    Attempt("become root", "import os; os.setuid(0); print('ESCAPED' if os.getuid() == 0 else os.getuid())", "python"),
    Attempt("run a set-user-ID program", "cp $(command -v id) s && chown 0 s && chmod u+s s && [ $(./s -u) = 0 ] && echo ESCAPED"),
    Attempt("mount a file system", "mkdir m && mount -t tmpfs none m && umount m && echo ESCAPED"),
    Attempt("mount a folder", "mkdir m && mount --bind {{outside}} m && cat m/secret.txt; umount m"),
    Attempt("make a new user namespace", "unshare -U true && echo ESCAPED"),
    Attempt("make a new mount namespace", "unshare -m true && echo ESCAPED"),
    Attempt("make a device", "mknod d c 1 5 && head -c 1 d >/dev/null && echo ESCAPED"),
    Attempt("give a file away", "touch f && chown 12345 f && echo ESCAPED"),
    Attempt("change the root folder", "import os; os.chroot('.'); print('ESCAPED')", "python"),
    system_call("trace another process", "done(libc.ptrace(16, {{pid}}, None, None)); libc.waitpid({{pid}}, None, 0); libc.ptrace(17, {{pid}}, None, None)"),
    system_call("read the memory of another process", "m = open('/proc/{{pid}}/maps').read().split('-')[0]; b = ctypes.create_string_buffer(8); l = (ctypes.c_size_t * 2)(ctypes.addressof(b), 8); r = (ctypes.c_size_t * 2)(int(m, 16), 8); done(call(310, 270, {{pid}}, l, 1, r, 1, 0))"),
    system_call("take a descriptor of another process", "p = os.pidfd_open({{pid}}); fd = call(438, 438, p, {{descriptor}}, 0); print(os.pread(fd, 100, 0))"),
    system_call("open a file by its handle", """
h = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128)); m = ctypes.c_int()
done(call(303, 264, -100, b"{{outside}}/secret.txt", h, ctypes.byref(m), 0))
"""),
    system_call("use io_uring", "p = ctypes.create_string_buffer(120); done(call(425, 425, 4, p))"),
    system_call("load a program into the kernel", "done(call(321, 280, 0, struct.pack('IIIIIIII', 2, 4, 4, 1, 0, 0, 0, 0), 32))"),
    system_call("watch the processor", "a = bytearray(112); a[0:8] = struct.pack('II', 1, 112); b = (ctypes.c_char * 112).from_buffer(a); done(call(298, 241, b, 0, -1, -1, 0))"),
    system_call("add a key to a keyring", "done(call(248, 217, b'user', b'bridle-test', b'x', 1, -1))"),
    system_call("handle page faults", "done(call(323, 282, 0))"),
    system_call("enter the namespace of another process", "fd = os.open('/proc/{{pid}}/ns/uts', os.O_RDONLY); done(call(308, 268, fd, 0))"),
    system_call("make a namespace with clone3", "a = struct.pack('11Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0); r = call(435, 435, a, 88)\nif r == 0: os._exit(0)\ndone(r)"),
    system_call("rename the machine", "n = os.uname().nodename.encode(); done(libc.sethostname(n, len(n)))"),
    system_call("watch all files", "done(call(300, 262, 0, 0))"),
    system_call("read the messages of the kernel", "b = ctypes.create_string_buffer(100); done(call(103, 116, 3, b, 100))"),
    system_call("read System V shared memory", "i = libc.shmget({{segment}}, 0, 0); libc.shmat.restype = ctypes.c_void_p; p = libc.shmat(i, None, 0o10000) if i >= 0 else None; print(ctypes.string_at(p) if p else 'absent')"),
    system_call("type into a terminal", "import pty, fcntl; a, b = pty.openpty(); os.setsid() if os.getpid() != os.getsid(0) else None; fcntl.ioctl(b, 0x540E, 0); done(0 if fcntl.ioctl(b, 0x5412, b'x') is not None else -1)"),
)  # fmt: skip
REACH = """
import os, socket
def reach(host, port, line="CONNECT {}:{} HTTP/1.1", more=""):
    proxy = os.environ.get("HTTP_PROXY", "")
    if proxy:
        at, _, number = proxy.removeprefix("http://").partition(":")
        s = socket.create_connection((at, int(number)), 10)
        s.sendall((line.format(host, port) + "\\r\\n" + more + "\\r\\n").encode())
    else:
        s = socket.create_connection((host.strip("[]"), port), 10)
    s.settimeout(10)
    print(s.makefile("rb").read())
"""


def through_proxy(name: str, code: str) -> Attempt:
    return Attempt(f"{name} through the proxy", REACH + code, "python", hosts=True)


PROXY = (
    *(attempt._replace(name=f"{attempt.name} beside the proxy", hosts=True) for attempt in NETWORK),
    through_proxy("reach a server of the machine", "reach('127.0.0.1', {{port}})"),
    through_proxy("reach a server of the machine by name", "reach('localhost', {{port}})"),
    through_proxy("reach a server of the machine by a short address", "reach('127.1', {{port}})"),
    through_proxy("reach a server of the machine by a number", "reach('2130706433', {{port}})"),
    through_proxy("reach a server of the machine by IPv6", "reach('[::1]', {{port6}})"),
    through_proxy("reach a server of the machine by a mapped address", "reach('[::ffff:127.0.0.1]', {{port}})"),
    through_proxy("reach a server of the machine by any address", "reach('0.0.0.0', {{port}})"),
    through_proxy("reach a server of the machine by its host name", "reach(socket.gethostname() if not os.environ.get('HTTP_PROXY') else '{{hostname}}', {{port}})"),
    through_proxy("reach another port of the allowed host", "reach('127.0.0.2', {{other_port}})"),
    through_proxy("reach a server by a plain request", "reach('127.0.0.1', {{port}}, 'GET http://{}:{}/ HTTP/1.1')"),
    through_proxy("reach a server by a user name", "reach('127.0.0.1', {{port}}, 'GET http://127.0.0.2@{}:{}/ HTTP/1.1')"),
    through_proxy("reach a server by a header", "reach('127.0.0.1', {{port}}, 'GET http://127.0.0.2/ HTTP/1.1', 'Host: 127.0.0.1:{{port}}\\r\\n')"),
    through_proxy("reach a server by a broken line", "reach('127.0.0.1', {{port}}, 'CONNECT 127.0.0.2:1\\r\\nCONNECT {}:{} HTTP/1.1')"),
    Attempt("connect with curl", "curl -s --http0.9 --max-time 10 http://127.0.0.1:{{port}}/", hosts=True),
    Attempt("connect with curl in a tunnel", "curl -s --http0.9 --max-time 10 --proxytunnel --noproxy '' http://127.0.0.1:{{port}}/", hosts=True),
    Attempt("connect with curl, without the proxy", "curl -s --http0.9 --max-time 10 --noproxy '*' http://127.0.0.1:{{port}}/", hosts=True),
    Attempt("use a socket that was left open", """
import os, stat
for number in range(3, 200):
    try:
        if stat.S_ISSOCK(os.fstat(number).st_mode): print("ESCAPED")
    except OSError:
        pass
""", "python", hosts=True),
)  # fmt: skip
SKILLS = (
    Attempt("change a skill", "echo x >> {{skills}}/zebra/SKILL.md && echo ESCAPED"),
    Attempt("add a skill", "mkdir {{skills}}/new && echo x > {{skills}}/new/SKILL.md && echo ESCAPED"),
    Attempt("remove a skill", "rm -r {{skills}}/zebra && echo ESCAPED"),
    Attempt("move the skills away", "mv {{skills}} {{skills}}.old && echo ESCAPED"),
    Attempt(
        "replace a skill by a link", "ln -sf {{outside}}/secret.txt {{skills}}/zebra/SKILL.md && echo ESCAPED"
    ),
    Attempt("look beside the skills", "cat {{skills}}/../secret.txt"),
)
ATTEMPTS = (*FILES, *PROCESSES, *NETWORK, *RIGHTS, *PROXY, *SKILLS)
