import { chmod } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build, type Plugin } from "esbuild";

const entry = fileURLToPath(new URL("main.ts", import.meta.url));

/**
 * client-node doesn't say that its modules only define things; without that its thousand models are bundled. Its own
 * modules and the entrance to the models are enough, and quick.
 */
const onlyDefinitions: Plugin = {
  name: "only-definitions",
  setup: (build) => {
    build.onResolve({ filter: /^(?:@kubernetes\/client-node|\.\/[a-z_]+\.js|\.\/gen\/index\.js)$/ }, async (args) => {
      const inside = args.path.startsWith("@") || args.importer.includes("/@kubernetes/client-node/dist/");
      if (!inside || args.pluginData === onlyDefinitions.name) return undefined;
      const { kind, importer, resolveDir } = args;
      const resolved = await build.resolve(args.path, { kind, importer, resolveDir, pluginData: onlyDefinitions.name });
      return { ...resolved, sideEffects: false };
    });
  },
};

/**
 * Writes the plugin as one executable file that kubectl finds as `kubectl-ate` on the PATH and that runs on the
 * system's node 20 or newer.
 */
export async function bundleCli(outFile: string): Promise<void> {
  await build({
    entryPoints: [entry],
    outfile: outFile,
    bundle: true,
    platform: "node",
    // a file without an extension is CommonJS to node, wherever it lies
    format: "cjs",
    target: "node20",
    minifySyntax: true,
    minifyWhitespace: true,
    legalComments: "none",
    plugins: [onlyDefinitions],
    // newer nodes would warn at each call of what a dependency of client-node uses
    banner: { js: "#!/usr/bin/env node\nprocess.noDeprecation = true;" },
    logLevel: "error",
  });
  await chmod(outFile, 0o755);
}
