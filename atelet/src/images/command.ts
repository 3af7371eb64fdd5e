import { SubstrateError } from "@substrate/lib/errors.ts";
import { type UnpackedImage } from "./images.ts";

/**
 * What to start, by Kubernetes' rules: a command replaces the image's entrypoint and its cmd, args replace its cmd.
 * Throws IMAGE_INVALID if nothing is left.
 *
 * @param reference for the message.
 */
export function resolveCommand(
  reference: string,
  image: Pick<UnpackedImage, "entrypoint" | "cmd">,
  command: readonly string[] = [],
  args: readonly string[] = [],
): string[] {
  const [first, rest] = command.length > 0 ? [command, args] : [image.entrypoint, args.length > 0 ? args : image.cmd];
  const all = [...first, ...rest];
  if (all.length > 0 && all[0] !== "") return all;
  const message = `image ${reference} names no program to start: set command in the Template's container`;
  throw new SubstrateError("IMAGE_INVALID", message);
}
