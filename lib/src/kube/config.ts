import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { parse } from "yaml";
import { z } from "zod";

/** Where an API server is and how to prove who we are: a client certificate, a bearer token, or both. */
export interface KubeConfig {
  /** Base URL, for instance `https://127.0.0.1:6443`; a path prefix is kept. */
  server: string;
  /** PEM of the authority that signed the server's certificate; without it the system's authorities count. */
  ca?: Buffer | string;
  /** PEM of the client certificate and its key. */
  cert?: Buffer | string;
  key?: Buffer | string;
  /** Asked before every call, so that a rotated token is picked up. */
  token?: () => string;
}

const kubeconfigFile = z.object({
  "current-context": z.string().optional(),
  contexts: z.array(z.object({ name: z.string(), context: z.object({ cluster: z.string(), user: z.string() }) })),
  clusters: z.array(
    z.object({
      name: z.string(),
      cluster: z.object({
        server: z.string(),
        "certificate-authority": z.string().optional(),
        "certificate-authority-data": z.string().optional(),
      }),
    }),
  ),
  users: z.array(
    z.object({
      name: z.string(),
      user: z.object({
        "client-certificate": z.string().optional(),
        "client-certificate-data": z.string().optional(),
        "client-key": z.string().optional(),
        "client-key-data": z.string().optional(),
        token: z.string().optional(),
        tokenFile: z.string().optional(),
      }),
    }),
  ),
});

function readText(path: string, what: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    throw new Error(`${what} ${path} cannot be read: ${error instanceof Error ? error.message : String(error)}`, {
      cause: error,
    });
  }
}

/**
 * Reads the current context of a kubeconfig file. Certificates may be inline (`*-data`) or files, relative to the
 * kubeconfig. Users of plugins (`exec`, `auth-provider`) are refused: the parts have certificates or tokens.
 */
export function loadKubeConfig(path: string): KubeConfig {
  let document: unknown;
  try {
    document = parse(readText(path, "kubeconfig").toString("utf8"));
  } catch (error) {
    throw new Error(`kubeconfig ${path}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  }
  const checked = kubeconfigFile.safeParse(document);
  if (!checked.success) throw new Error(`kubeconfig ${path} is not valid:\n${z.prettifyError(checked.error)}`);
  const file = checked.data;

  const contextName = file["current-context"];
  if (contextName === undefined || contextName === "")
    throw new Error(`kubeconfig ${path} has no current-context: set one with "kubectl config use-context"`);
  const context = file.contexts.find((entry) => entry.name === contextName)?.context;
  if (context === undefined) throw new Error(`kubeconfig ${path}: current-context "${contextName}" is not in contexts`);
  const cluster = file.clusters.find((entry) => entry.name === context.cluster)?.cluster;
  if (cluster === undefined) throw new Error(`kubeconfig ${path}: cluster "${context.cluster}" is not in clusters`);
  const user = file.users.find((entry) => entry.name === context.user)?.user;
  if (user === undefined) throw new Error(`kubeconfig ${path}: user "${context.user}" is not in users`);

  const pem = (inline: string | undefined, file: string | undefined, what: string): Buffer | undefined => {
    if (inline !== undefined) return Buffer.from(inline, "base64");
    if (file !== undefined) return readText(resolve(dirname(path), file), what);
    return undefined;
  };
  const ca = pem(cluster["certificate-authority-data"], cluster["certificate-authority"], "certificate-authority");
  const cert = pem(user["client-certificate-data"], user["client-certificate"], "client-certificate");
  const key = pem(user["client-key-data"], user["client-key"], "client-key");
  const token = tokenOf(user.token, user.tokenFile === undefined ? undefined : resolve(dirname(path), user.tokenFile));
  if (token === undefined && (cert === undefined || key === undefined))
    throw new Error(`kubeconfig ${path}: user "${context.user}" has neither a client certificate with key nor a token`);
  return {
    server: cluster.server,
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
    ...(token === undefined ? {} : { token }),
  };
}

function tokenOf(token: string | undefined, file: string | undefined): (() => string) | undefined {
  if (file !== undefined) return () => readText(file, "token file").toString("utf8").trim();
  if (token !== undefined) return () => token;
  return undefined;
}

/** Where the kubelet mounts a pod's ServiceAccount (Kubernetes documentation, "Accessing the API from a Pod"). */
const serviceAccountFolder = "/var/run/secrets/kubernetes.io/serviceaccount";

/**
 * The configuration of a pod: its ServiceAccount's token, reread at every call because the kubelet rotates it, and the
 * address that the kubelet gives every container, so that no part needs the cluster's DNS to reach the API server.
 */
export function inClusterConfig(env: Record<string, string | undefined> = process.env): KubeConfig {
  const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port = "443" } = env;
  if (host === undefined || host === "") {
    throw new Error("this is no pod (KUBERNETES_SERVICE_HOST is not set): name a kubeconfig by --kubeconfig");
  }
  return {
    server: `https://${host.includes(":") ? `[${host}]` : host}:${port}`,
    ca: readText(`${serviceAccountFolder}/ca.crt`, "cluster CA"),
    token: () => readText(`${serviceAccountFolder}/token`, "ServiceAccount token").toString("utf8").trim(),
  };
}
