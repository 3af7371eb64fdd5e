import koffi from "koffi";

/** The few system calls that Node lacks, for use in a worker thread: every call blocks. */
export interface Linux {
  /** Runs `inside` with this thread in the network namespace of the open descriptor, and comes back. */
  inNetns<T>(netnsFd: number, inside: () => T): T;
  /** Runs `inside` with this thread in a new network namespace, and comes back. */
  inNewNetns<T>(inside: () => T): T;
  bindMount(source: string, target: string): void;
  /** @returns false if nothing was mounted there. */
  unmount(target: string): boolean;
  /** A netlink socket of this thread's namespace whose reads give up after 5 s. */
  netlinkSocket(protocol: "route" | "netfilter"): NetlinkSocket;
}

export interface NetlinkSocket {
  send(bytes: Buffer): void;
  /** One datagram. */
  receive(): Buffer;
  close(): void;
}

const cloneNewNet = 0x40000000;
const msBind = 0x1000;
const mntDetach = 2;
const afNetlink = 16;
const sockRawCloexec = 3 | 0x80000;
const netlinkProtocol = { route: 0, netfilter: 12 } as const;
const solSocket = 1;
const soRcvTimeo = 20;
const receiveTimeoutSeconds = 5n;
const openReadCloexec = 0x80000;
/** Dumps come in datagrams of at most 32 KiB. */
const receiveBytes = 64 * 1024;

const koffiErrno = koffi.os.errno;

export function loadLinux(): Linux {
  const c = koffi.load("libc.so.6");
  const setns = c.func("int setns(int fd, int nstype)") as (fd: number, type: number) => number;
  const unshare = c.func("int unshare(int flags)") as (flags: number) => number;
  const open = c.func("int open(const char *path, int flags)") as (path: string, flags: number) => number;
  const close = c.func("int close(int fd)") as (fd: number) => number;
  const mount = c.func(
    "int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data)",
  ) as (source: string, target: string, type: string, flags: number, data: null) => number;
  const umount2 = c.func("int umount2(const char *target, int flags)") as (target: string, flags: number) => number;
  const socket = c.func("int socket(int domain, int type, int protocol)") as (
    d: number,
    t: number,
    p: number,
  ) => number;
  const setsockopt = c.func("int setsockopt(int fd, int level, int name, const void *value, uint32_t length)") as (
    fd: number,
    level: number,
    name: number,
    value: Buffer,
    length: number,
  ) => number;
  const send = c.func("long send(int fd, const void *bytes, size_t length, int flags)") as (
    fd: number,
    bytes: Buffer,
    length: number,
    flags: number,
  ) => number;
  const recv = c.func("long recv(int fd, _Out_ void *bytes, size_t length, int flags)") as typeof send;

  function checked(result: number, what: string): number {
    if (result >= 0) return result;
    const errno = koffi.errno();
    const code = Object.entries(koffiErrno).find(([, value]) => value === errno)?.[0] ?? `errno ${errno}`;
    throw new Error(`${what}: ${code}`);
  }

  /** A thread that cannot come back would act in an actor's namespace: then nothing may go on. */
  function andBack<T>(enter: () => void, inside: () => T): T {
    const home = checked(open("/proc/thread-self/ns/net", openReadCloexec), "open this thread's network namespace");
    try {
      enter();
      try {
        return inside();
      } finally {
        if (setns(home, cloneNewNet) !== 0) process.abort();
      }
    } finally {
      close(home);
    }
  }

  return {
    inNetns: (netnsFd, inside) =>
      andBack(() => checked(setns(netnsFd, cloneNewNet), "enter network namespace"), inside),
    inNewNetns: (inside) => andBack(() => checked(unshare(cloneNewNet), "make a network namespace"), inside),
    bindMount(source, target) {
      checked(mount(source, target, "none", msBind, null), `bind ${source} to ${target}`);
    },
    unmount(target) {
      if (umount2(target, mntDetach) === 0) return true;
      const errno = koffi.errno();
      if (errno === koffiErrno.EINVAL || errno === koffiErrno.ENOENT) return false;
      return checked(-1, `unmount ${target}`) >= 0;
    },
    netlinkSocket(protocol) {
      const fd = checked(socket(afNetlink, sockRawCloexec, netlinkProtocol[protocol]), `open a ${protocol} socket`);
      const timeout = Buffer.alloc(16);
      timeout.writeBigInt64LE(receiveTimeoutSeconds);
      checked(setsockopt(fd, solSocket, soRcvTimeo, timeout, timeout.length), "set a netlink timeout");
      const buffer = Buffer.alloc(receiveBytes);
      return {
        send(bytes) {
          checked(send(fd, bytes, bytes.length, 0), "send to the kernel by netlink");
        },
        receive() {
          const length = checked(recv(fd, buffer, buffer.length, 0), "wait for the kernel's answer by netlink");
          return Buffer.from(buffer.subarray(0, length));
        },
        close: () => void close(fd),
      };
    },
  };
}
