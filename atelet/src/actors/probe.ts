import { get } from "node:http";

/** Of a refusing answer, for the message. */
const BODY_CHARACTERS = 200;

export interface ProbeOptions {
  /** What is asked, as the Template calls it. */
  title: string;
  timeoutMs: number;
  /** Ends it, and closes its connection, at once. */
  signal?: AbortSignal;
}

/** One GET inside an actor. @returns why the answer is not one of 200–399, or undefined. Never rejects. */
export function probeHttp(
  host: string,
  { path, port }: { path: string; port: number },
  { title, timeoutMs, signal }: ProbeOptions,
): Promise<string | undefined> {
  const what = `${title} GET :${port}${path}`;
  return new Promise((resolve) => {
    // agent: false closes the connection after the answer: none of ours may be open at a checkpoint.
    const request = get(
      { host, port, path, agent: false, timeout: timeoutMs, ...(signal && { signal }) },
      (response) => {
        const { statusCode = 0 } = response;
        if (statusCode >= 200 && statusCode < 400) {
          response.resume();
          resolve(undefined);
          return;
        }
        response.setEncoding("utf8").once("data", (text: string) => {
          resolve(`${what} answered ${statusCode}: ${text.slice(0, BODY_CHARACTERS).trim()}`);
          response.destroy();
        });
        response.once("end", () => {
          resolve(`${what} answered ${statusCode}`);
        });
      },
    );
    request.on("timeout", () => request.destroy(new Error(`no answer within ${timeoutMs / 1000} s`)));
    request.on("error", (error) => {
      resolve(`${what}: ${explainRefusal(error)}`);
    });
  });
}

export function explainRefusal(error: Error): string {
  if (!("code" in error) || error.code !== "ECONNREFUSED") return error.message;
  return "connection refused: nothing listens there yet, or only on 127.0.0.1 instead of 0.0.0.0";
}
