/** The exit code of a program that was run inside an actor: it becomes the command's own, and nothing is said. */
export class ProgramExit extends Error {
  override readonly name = "ProgramExit";
  readonly code: number;

  constructor(code: number) {
    super(`the program ended with exit code ${code}`);
    this.code = code;
  }
}
