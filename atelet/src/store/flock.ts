import koffi from "koffi";

// sys/file.h and errno.h
const exclusive = 2;
const nonBlocking = 4;
const wouldBlock = 11;

/** flock(2), exclusive, never waiting. The kernel drops the lock when the file is closed or its process dies. */
export class Flock {
  readonly #call: (fd: number, operation: number) => number;

  constructor() {
    this.#call = koffi.load("libc.so.6").func("int flock(int fd, int operation)") as (fd: number, op: number) => number;
  }

  /** False if another open file has it. Throws where the file system has no locks. */
  try(fd: number): boolean {
    if (this.#call(fd, exclusive | nonBlocking) === 0) return true;
    const errno = koffi.errno();
    if (errno !== wouldBlock) throw new Error(`flock failed with errno ${errno}: the file system must support locks`);
    return false;
  }
}
