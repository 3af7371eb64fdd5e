import { Socket } from "node:net";
import koffi from "koffi";

/** bits/socket.h, bits/socket_type.h, asm-generic/fcntl.h */
const [AF_UNIX, SOCK_STREAM, SOCK_CLOEXEC, SOCK_NONBLOCK] = [1, 1, 0o2000000, 0o4000];
const [SOL_SOCKET, SCM_RIGHTS, MSG_NOSIGNAL] = [1, 1, 0x4000];
/** sun_path of sockaddr_un(7), its final zero included. */
const PATH_BYTES = 108;
/** struct cmsghdr on 64-bit machines. */
const CMSG_HEADER_BYTES = 16;

interface Libc {
  socket(domain: number, type: number, protocol: number): number;
  connect(fd: number, address: Buffer, length: number): number;
  sendmsg(fd: number, message: MessageHeader, flags: number): number;
  close(fd: number): number;
}

interface MessageHeader {
  name: null;
  namelen: number;
  iov: { base: Buffer; length: number }[];
  iovlen: number;
  control: Buffer | null;
  controllen: number;
  flags: number;
}

function loadLibc(): Libc {
  const c = koffi.load("libc.so.6");
  const iovec = koffi.struct({ base: "void *", length: "size_t" });
  const msghdr = koffi.struct({
    name: "void *",
    namelen: "uint32_t",
    iov: koffi.pointer(iovec),
    iovlen: "size_t",
    control: "void *",
    controllen: "size_t",
    flags: "int",
  });
  return {
    socket: c.func("int socket(int domain, int type, int protocol)") as Libc["socket"],
    connect: c.func("int connect(int fd, const void *address, uint32_t length)") as Libc["connect"],
    sendmsg: c.func("sendmsg", "long", ["int", koffi.pointer(msghdr), "int"]) as Libc["sendmsg"],
    close: c.func("int close(int fd)") as Libc["close"],
  };
}

interface Answer {
  success: boolean;
  err: string;
}

export interface ControlCall {
  /** Of gVisor's containerManager (runsc/boot/controller.go). */
  method: string;
  argument: object | null;
  /** Open descriptors that go with it; they stay the caller's. */
  files?: readonly number[];
  timeoutMs: number;
}

/**
 * Asks a sandbox itself, by the socket by which runsc's commands do (gVisor's pkg/urpc: one JSON value there and one
 * back, descriptors beside it): a process of runsc that only passes a question on costs 10 ms of a core and more.
 */
export class SandboxControl {
  readonly #libc = loadLibc();

  /** @throws what the sandbox says, that it can't be asked, or that it has ended meanwhile. */
  async call(path: string, { method, argument, files = [], timeoutMs }: ControlCall): Promise<void> {
    const socket = this.#send(path, JSON.stringify({ method, arg: argument }), files);
    const answer = await answerOf(socket, timeoutMs, method);
    if (!answer.success) throw new Error(answer.err === "" ? `${method} failed` : answer.err);
  }

  /** A connection on which the request is under way. It takes no waiting: nothing is in its buffers yet. */
  #send(path: string, text: string, files: readonly number[]): Socket {
    const address = addressOf(path);
    const fd = this.#must("socket", this.#libc.socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    try {
      this.#must(`connect to ${path}`, this.#libc.connect(fd, address, address.length));
      const bytes = Buffer.from(text);
      const control = files.length === 0 ? null : rightsOf(files);
      const sent = this.#libc.sendmsg(
        fd,
        {
          name: null,
          namelen: 0,
          iov: [{ base: bytes, length: bytes.length }],
          iovlen: 1,
          control,
          controllen: control?.length ?? 0,
          flags: 0,
        },
        MSG_NOSIGNAL,
      );
      if (this.#must("sendmsg", sent) !== bytes.length) throw new Error(`${path} took ${sent} bytes of a request`);
      return new Socket({ fd });
    } catch (error) {
      this.#libc.close(fd);
      throw error;
    }
  }

  #must(what: string, result: number): number {
    if (result >= 0) return result;
    const errno = koffi.errno();
    const name = Object.entries(koffi.os.errno).find(([, value]) => value === errno)?.[0];
    throw new Error(`${what}: ${name ?? `errno ${errno}`}`);
  }
}

/** struct sockaddr_un. */
function addressOf(path: string): Buffer {
  const name = Buffer.from(path);
  if (name.length >= PATH_BYTES) throw new Error(`${path} is too long for a socket's path`);
  const address = Buffer.alloc(2 + name.length + 1);
  address.writeUInt16LE(AF_UNIX, 0);
  name.copy(address, 2);
  return address;
}

/** One control message with descriptors (cmsg(3)). */
function rightsOf(files: readonly number[]): Buffer {
  const length = CMSG_HEADER_BYTES + 4 * files.length;
  const control = Buffer.alloc(Math.ceil(length / 8) * 8);
  control.writeBigUInt64LE(BigInt(length), 0);
  control.writeInt32LE(SOL_SOCKET, 8);
  control.writeInt32LE(SCM_RIGHTS, 12);
  for (const [index, fd] of files.entries()) control.writeInt32LE(fd, CMSG_HEADER_BYTES + 4 * index);
  return control;
}

function answerOf(socket: Socket, timeoutMs: number, method: string): Promise<Answer> {
  return new Promise<Answer>((resolve, reject) => {
    let text = "";
    const timer = setTimeout(() => {
      reject(new Error(`${method} did not end within ${timeoutMs} ms`));
      socket.destroy();
    }, timeoutMs);
    socket.setEncoding("utf8");
    socket.on("data", (piece: string) => {
      text += piece;
      const answer = parsed(text);
      if (answer === undefined) return;
      resolve(answer);
      socket.destroy();
    });
    socket.on("error", reject);
    socket.on("close", () => {
      clearTimeout(timer);
      reject(new Error(`the sandbox ended before it answered ${method}`));
    });
  });
}

/** Undefined while the end of it has not come yet. */
function parsed(text: string): Answer | undefined {
  if (!text.endsWith("}")) return undefined;
  try {
    return JSON.parse(text) as Answer;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
