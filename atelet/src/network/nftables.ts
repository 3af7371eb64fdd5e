import koffi, { type LibraryHandle } from "koffi";

/** libnftables in this process: 0.1–0.2 ms a command, where spawning nft costs 6–9. Calls block. */
export interface Nftables {
  /** One atomic transaction, as `nft -f -` would run it. Throws with nft's own message. */
  run(commands: string): void;
  /** A list command's answer, as `nft -j` prints it. */
  list(command: string): unknown;
}

const jsonOutput = 1 << 4;
const libraryName = "libnftables.so.1";

type Context = object;

export function loadNftables(): Nftables {
  let library: LibraryHandle;
  try {
    library = koffi.load(libraryName);
  } catch (error) {
    throw new Error(`${libraryName} cannot be loaded: install the package nftables (Debian) on this node`, {
      cause: error,
    });
  }
  const create = library.func("void *nft_ctx_new(uint32_t flags)") as (flags: number) => Context | null;
  const bufferOutput = library.func("int nft_ctx_buffer_output(void *ctx)") as (ctx: Context) => number;
  const bufferError = library.func("int nft_ctx_buffer_error(void *ctx)") as (ctx: Context) => number;
  const output = library.func("const char *nft_ctx_get_output_buffer(void *ctx)") as (ctx: Context) => string;
  const errors = library.func("const char *nft_ctx_get_error_buffer(void *ctx)") as (ctx: Context) => string;
  const setFlags = library.func("void nft_ctx_output_set_flags(void *ctx, uint32_t flags)") as (
    ctx: Context,
    flags: number,
  ) => void;
  const runCommand = library.func("int nft_run_cmd_from_buffer(void *ctx, const char *commands)") as (
    ctx: Context,
    commands: string,
  ) => number;

  const created = create(0);
  if (created === null) throw new Error("nftables: no context; is there CAP_NET_ADMIN in this network namespace?");
  const context: Context = created;
  bufferOutput(context);
  bufferError(context);

  function run(commands: string): string {
    const result = runCommand(context, commands);
    const printed = output(context);
    if (result !== 0) throw new Error(`nftables refused: ${errors(context).trim()}`);
    return printed;
  }
  return {
    run: (commands) => void run(commands),
    list(command) {
      setFlags(context, jsonOutput);
      try {
        return JSON.parse(run(command)) as unknown;
      } finally {
        setFlags(context, 0);
      }
    },
  };
}
