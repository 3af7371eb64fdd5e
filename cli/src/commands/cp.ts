import { stat } from "node:fs/promises";
import { basename, join, posix } from "node:path";
import { Readable } from "node:stream";
import { once } from "node:events";
import { Command } from "commander";
import { pack } from "tar-stream";
import { addTo, Unpacking } from "../archive.ts";
import { withConnection } from "../config.ts";
import { Connection, type ConnectionFlags } from "../connection.ts";
import { examples } from "../examples.ts";
import { CommandFailure } from "../failure.ts";
import { printable } from "../printable.ts";
import { runRemote } from "../remote.ts";
import { type Terminal } from "../terminal.ts";

export function cpCommand(terminal: Terminal): Command {
  return withConnection(new Command("cp").summary("copy files into an actor and out of it"))
    .description(
      "Copy files and folders between this machine and an actor, by the program tar of the actor's image.\n" +
        "A target that ends with / is a folder to copy into; any other is the name that the copy gets.",
    )
    .argument("<from>", "a path here, or ACTOR:/path")
    .argument("<to>", "ACTOR:/path, or a path here")
    .addHelpText(
      "after",
      examples(
        ["kubectl ate cp counter:/data/counter.txt ./counter.txt", "a file out of an actor"],
        ["kubectl ate cp ./seed counter:/data/", "a folder into an actor: /data/seed"],
      ),
    )
    .action(async (from: string, to: string, flags: ConnectionFlags) => {
      const connection = new Connection(flags);
      const source = remotePath(from);
      const target = remotePath(to);
      if (source !== undefined && target === undefined) await download(terminal, connection, source, to);
      else if (source === undefined && target !== undefined) await upload(terminal, connection, from, target);
      else {
        const hint = "one of them is ACTOR:/path, the other a path here";
        throw new CommandFailure("usage", `can't copy from ${from} to ${to}`, hint);
      }
    });
}

interface RemotePath {
  name: string;
  path: string;
}

function remotePath(text: string): RemotePath | undefined {
  const [, name, path] = /^([a-z0-9][-a-z0-9.]*):(.*)$/.exec(text) ?? [];
  if (name === undefined || path === undefined) return undefined;
  if (!path.startsWith("/")) {
    throw new CommandFailure("usage", `${text}: a path in an actor begins with /`, `write ${name}:/${path}`);
  }
  return { name, path };
}

async function download(terminal: Terminal, connection: Connection, from: RemotePath, to: string): Promise<void> {
  const path = posix.normalize(from.path).replace(/\/$/, "");
  if (path === "")
    throw new CommandFailure("usage", "the whole root of an actor can't be copied", "name a folder in it");
  const root = posix.basename(path);
  const into = to.endsWith("/") || (await isFolder(to));
  const unpacking = new Unpacking(root, into ? join(to, root) : to);
  const address = { namespace: connection.namespace, name: from.name };
  const said = new Said();
  const code = await withTar(from.name, () =>
    runRemote(connection, address, {
      command: ["tar", "-cf", "-", "-C", posix.dirname(path), root],
      tty: false,
      stdout: async (bytes) => {
        if (!unpacking.stream.write(bytes)) {
          await Promise.race([once(unpacking.stream, "drain"), unpacking.done]);
        }
      },
      stderr: (bytes) => {
        said.add(bytes);
      },
    }),
  );
  unpacking.stream.end(undefined);
  if (code !== 0) throw failed(`${from.name}:${from.path}`, code, said);
  const skipped = await unpacking.done;
  for (const line of skipped) terminal.stderr.write(`left out: ${printable(line)}\n`);
  terminal.stdout.write(`copied ${count(unpacking.files)} from ${from.name}:${from.path} to ${to}\n`);
}

async function upload(terminal: Terminal, connection: Connection, from: string, to: RemotePath): Promise<void> {
  if ((await statOf(from)) === undefined) throw new CommandFailure("usage", `there is no ${from}`);
  const folder = to.path.endsWith("/") ? posix.normalize(to.path) : posix.dirname(to.path);
  const name = to.path.endsWith("/") ? basename(join(from)) : posix.basename(to.path);
  const tar = pack();
  const adding = addTo(tar, from, name);
  adding.then(
    () => {
      tar.finalize();
    },
    (error: unknown) => {
      tar.destroy(error instanceof Error ? error : new Error(String(error)));
    },
  );
  const said = new Said();
  const address = { namespace: connection.namespace, name: to.name };
  const output = (bytes: Buffer): void => {
    said.add(bytes);
  };
  const command = ["tar", "-xof", "-", "-C", folder];
  const stdin = Readable.from(tar);
  const running = withTar(to.name, () =>
    runRemote(connection, address, { command, tty: false, stdin, stdout: output, stderr: output }),
  );
  const code = await Promise.race([running, adding.then(() => running)]);
  if (code !== 0) throw failed(`${to.name}:${to.path}`, code, said);
  for (const path of await adding) terminal.stderr.write(`left out: ${path} is neither a file, a folder nor a link\n`);
  terminal.stdout.write(`copied ${from} to ${to.name}:${posix.join(folder, name)}\n`);
}

/** An image without tar is the most common reason. */
async function withTar(name: string, run: () => Promise<number>): Promise<number> {
  try {
    return await run();
  } catch (error) {
    if (!(error instanceof CommandFailure) || !error.message.includes('cannot run "tar"')) throw error;
    throw new CommandFailure(
      "operationFailed",
      `the image of actor ${name} has no program tar, which cp needs`,
      `add tar to its image; single text files can be read with "kubectl ate exec ${name} -- cat FILE" where it has cat`,
      error,
    );
  }
}

function failed(what: string, code: number, said: Said): CommandFailure {
  return new CommandFailure(
    "operationFailed",
    `${what}: tar in the actor ended with exit code ${code}: ${said.text()}`,
  );
}

/** What a program said, at most its first lines. */
class Said {
  #text = "";

  add(bytes: Buffer): void {
    if (this.#text.length < 2_000) this.#text += bytes.toString();
  }

  text(): string {
    return this.#text.trim().split("\n").map(printable).join("\n") || "it said nothing";
  }
}

function count(files: number): string {
  return files === 1 ? "1 file" : `${files} files`;
}

async function isFolder(path: string): Promise<boolean> {
  return (await statOf(path))?.isDirectory() === true;
}

async function statOf(path: string) {
  try {
    return await stat(path);
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}
