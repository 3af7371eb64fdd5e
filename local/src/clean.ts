import { removeLeftovers } from "./leftovers.ts";
import { StateFolder } from "./state-folder.ts";

/** `node local/src/clean.ts DIR…`: ends and removes what killed clusters on these state folders left running. */
for (const folder of process.argv.slice(2)) {
  const state = StateFolder.open(folder);
  await removeLeftovers(state, (line) => {
    process.stdout.write(`${folder}: ${line}\n`);
  });
  state.close();
}
