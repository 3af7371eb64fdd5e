import { type ErrorCode } from "@substrate/lib/errors.ts";
import { type LocalPages, type Packed, type PackUse, type Unpacked } from "./pages.ts";

/** What a thread is given to do; a request without its callbacks, which the thread asks for. */
export interface Works {
  table: { file: string; table: string; growing: boolean; patient: boolean };
  verify: { file: string; table: string };
  pack: { file: string; table: string; base: Pick<LocalPages, "table" | "index"> | undefined; keyPrefix: string };
  unpack: {
    index: Uint8Array;
    indexName: string;
    file: string;
    table: string;
    reuse: readonly LocalPages[];
    lent: boolean;
  };
}

export interface WorkResults {
  table: undefined;
  verify: string | undefined;
  pack: Packed;
  unpack: Unpacked;
}

export type WorkName = keyof Works;

/** What a thread asks of its caller. */
export interface Questions {
  written: undefined;
  calm: undefined;
  use: { packKeys: string[] };
  /** The first bytes of the buffer. */
  put: { packKey: string; bytes: ArrayBuffer; lengthBytes: number };
  get: { packKey: string; offset: number; length: number; into: ArrayBuffer };
}

export interface Answers {
  written: undefined;
  calm: undefined;
  use: PackUse[];
  /** The buffer again, or one of its size. */
  put: ArrayBuffer;
  /** With the bytes at its beginning. */
  get: ArrayBuffer;
}

export type QuestionName = keyof Questions;

export type ToThread =
  | { id: number; name: WorkName; work: Works[WorkName]; given: Int32Array }
  | { id: number; question: number; answer: Answers[QuestionName] }
  | { id: number; abandon: true };

export type FromThread =
  | { id: number; question: number; name: QuestionName; asked: Questions[QuestionName] }
  | { id: number; result: WorkResults[WorkName] }
  | { id: number; failed: Failure };

/** An error on its way; `errno` is the operating system's name of it. */
export interface Failure {
  code: ErrorCode;
  message: string;
  stack: string | undefined;
  errno: string | undefined;
}
