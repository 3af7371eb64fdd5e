import { setImmediate as nextTurn } from "node:timers/promises";
import { type Transferable } from "node:worker_threads";
import { type Answers, type QuestionName, type Questions } from "./protocol.ts";

/** How long a job works before it lets others of its thread work. */
const turnMs = 4;

/** The caller gave up, or one of its callbacks failed; it has the error itself. */
export class Abandoned extends Error {
  constructor() {
    super("abandoned by its caller");
  }
}

type Ask = (question: number, name: QuestionName, asked: Questions[QuestionName], transfer: Transferable[]) => void;

/** One piece of work, on its thread. */
export class Job {
  /** Other than 0 once the caller has given up; set by its own thread. */
  readonly #given: Int32Array;
  readonly #ask: Ask;
  readonly #waiting = new Map<
    number,
    { resolve: (answer: Answers[QuestionName]) => void; reject: (error: Error) => void }
  >();
  #nextQuestion = 1;
  #stopped = false;
  #turnStartMs = performance.now();

  constructor(given: Int32Array, ask: Ask) {
    this.#given = given;
    this.#ask = ask;
  }

  /** To be called every few milliseconds. Throws Abandoned. */
  async breathe(): Promise<void> {
    this.#check();
    if (performance.now() - this.#turnStartMs < turnMs) return;
    await nextTurn();
    this.#turnStartMs = performance.now();
    this.#check();
  }

  /** Throws Abandoned. */
  ask<N extends QuestionName>(name: N, asked: Questions[N], transfer: Transferable[] = []): Promise<Answers[N]> {
    const question = this.#nextQuestion++;
    const answer = new Promise<Answers[QuestionName]>((resolve, reject) => {
      this.#check();
      this.#waiting.set(question, { resolve, reject });
      this.#ask(question, name, asked, transfer);
    });
    // when a job has failed, nobody waits for its other questions
    answer.catch(() => undefined);
    // the caller answers a question by its name
    return answer as Promise<Answers[N]>;
  }

  answer(question: number, answer: Answers[QuestionName]): void {
    const waiting = this.#waiting.get(question);
    this.#waiting.delete(question);
    if (waiting !== undefined) waiting.resolve(answer);
    // freed at once
    else if (answer instanceof ArrayBuffer) answer.transfer(0);
  }

  /** Lets all its parts end: whoever breathes or waits for an answer gets Abandoned. */
  stop(): void {
    this.#stopped = true;
    for (const { reject } of this.#waiting.values()) reject(new Abandoned());
    this.#waiting.clear();
  }

  #check(): void {
    if (this.#stopped || Atomics.load(this.#given, 0) !== 0) throw new Abandoned();
  }
}
