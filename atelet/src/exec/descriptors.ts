import { closeSync, openSync } from "node:fs";
import { SubstrateError } from "@substrate/lib/errors.ts";
import koffi from "koffi";

export interface TerminalSize {
  columns: number;
  rows: number;
}

/** asm-generic/fcntl.h */
const openReadWrite = 0o2;
const openNoControl = 0o400;
const openCloseOnExec = 0o2000000;
/** asm-generic/ioctls.h */
const setWindowSize = 0x5414;
const setLock = 0x40045431;
const openPeer = 0x5441;

type Ioctl = (fd: number, request: number, type: "int" | "void *", value: number | Buffer) => number;

/**
 * Pipes and pseudo-terminals, which Node cannot make. A program in a sandbox must not get Node's own "pipes": they are
 * sockets, and an image with a process that holds one cannot be restored.
 */
export class Descriptors {
  readonly #pipe2: (fds: Buffer, flags: number) => number;
  readonly #ioctl: Ioctl;

  constructor() {
    const c = koffi.load("libc.so.6");
    this.#pipe2 = c.func("int pipe2(void *fds, int flags)") as (fds: Buffer, flags: number) => number;
    this.#ioctl = c.func("int ioctl(int fd, unsigned long request, ...)") as Ioctl;
  }

  pipe(): { readFd: number; writeFd: number } {
    const fds = Buffer.alloc(8);
    this.#check(this.#pipe2(fds, openCloseOnExec), "pipe2");
    return { readFd: fds.readInt32LE(0), writeFd: fds.readInt32LE(4) };
  }

  /** Both ends of a new pseudo-terminal; the programs get `replicaFd`. */
  terminal(size: TerminalSize): { mainFd: number; replicaFd: number } {
    const mainFd = openSync("/dev/ptmx", openReadWrite | openNoControl | openCloseOnExec);
    try {
      this.#check(this.#ioctl(mainFd, setLock, "void *", Buffer.alloc(4)), "ioctl TIOCSPTLCK");
      this.resize(mainFd, size);
      const replicaFd = this.#ioctl(mainFd, openPeer, "int", openReadWrite | openNoControl | openCloseOnExec);
      this.#check(replicaFd, "ioctl TIOCGPTPEER");
      return { mainFd, replicaFd };
    } catch (error) {
      closeSync(mainFd);
      throw error;
    }
  }

  resize(mainFd: number, { columns, rows }: TerminalSize): void {
    const size = Buffer.alloc(8);
    size.writeUInt16LE(Math.min(rows, 0xffff), 0);
    size.writeUInt16LE(Math.min(columns, 0xffff), 2);
    this.#check(this.#ioctl(mainFd, setWindowSize, "void *", size), "ioctl TIOCSWINSZ");
  }

  #check(result: number, what: string): void {
    if (result < 0) throw new SubstrateError("INTERNAL", `${what} failed with errno ${koffi.errno()}`);
  }
}
