import { homedir } from "node:os";
import { join, resolve } from "node:path";

/** The folder that relative paths of a command line mean: npm runs scripts in the project's, wherever it was called. */
export function callersFolder(environment: NodeJS.ProcessEnv = process.env): string {
  return environment.INIT_CWD ?? process.cwd();
}

/** Where built images and Debian's packages are kept, outside of the checkout, beside the built tools. */
export function imagesCache(environment: NodeJS.ProcessEnv = process.env): string {
  const base =
    environment.SUBSTRATE_CACHE ?? join(environment.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "substrate");
  return join(resolve(base), "images");
}

/** The environment of programs whose output is parsed: it must not depend on the caller's language or settings. */
export function programEnvironment(environment: NodeJS.ProcessEnv = process.env): NodeJS.ProcessEnv {
  const { PATH, HOME, http_proxy, https_proxy, no_proxy, HTTP_PROXY, HTTPS_PROXY, NO_PROXY, DOCKER_CONFIG } =
    environment;
  const kept = { HOME, http_proxy, https_proxy, no_proxy, HTTP_PROXY, HTTPS_PROXY, NO_PROXY, DOCKER_CONFIG };
  return {
    ...Object.fromEntries(Object.entries(kept).filter(([, value]) => value !== undefined)),
    PATH: [...new Set([...(PATH ?? "").split(":"), "/usr/sbin", "/usr/bin", "/sbin", "/bin"])]
      .filter((folder) => folder.startsWith("/"))
      .join(":"),
    LC_ALL: "C",
    DEBIAN_FRONTEND: "noninteractive",
    // chroot needs no runtime; what is built here never runs a program of a foreign image
    BUILDAH_ISOLATION: "chroot",
  };
}
