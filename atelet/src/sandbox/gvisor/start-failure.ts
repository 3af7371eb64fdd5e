/** runsc puts before what went wrong the steps that led there, which say nothing to who wrote the program. */
const steps = /(?:(?:running|starting)(?: root)? container: |starting sandbox: |creating process: )+/;
const noSuchProgram = /failed to load (\S+): no such file or directory/;

/** What a failed `runsc run` says, for the person whose program it is. */
export function startFailure(args: readonly string[], said: string): string {
  const path = noSuchProgram.exec(said)?.[1];
  if (path !== undefined) {
    return (
      `${args.join(" ")} did not start: the image has no ${path}, or not the interpreter or loader that it names; ` +
      `correct command and args of the Template's container, or the image`
    );
  }
  return `${args.join(" ")} did not start: ${said.replace(steps, "")}`;
}
