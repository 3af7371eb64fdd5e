import { request as httpRequest, type IncomingMessage, type OutgoingHttpHeaders } from "node:http";
import { Agent, request as httpsRequest, type RequestOptions } from "node:https";
import { text } from "node:stream/consumers";
import { KubeConfig } from "@kubernetes/client-node";
import { CommandFailure } from "./failure.ts";

export interface ConnectionFlags {
  kubeconfig?: string;
  context?: string;
  namespace?: string;
}

export interface Call {
  method?: string;
  headers?: Record<string, string | string[]>;
  body?: string;
  signal?: AbortSignal;
}

/** Credentials of a plugin or a rotated token file are read again after this. */
const credentialsFreshMs = 30_000;

/** Of the answer's headers; a server that accepts the connection and says nothing is not there. */
const answerTimeoutMs = 65_000;

/** The API server of a kubeconfig, with the user's credentials: all that the plugin ever talks to. */
export class Connection {
  readonly server: string;
  readonly namespace: string;
  readonly #config: KubeConfig;
  #credentials: { options: RequestOptions; readAt: number } | undefined;

  /** Reads the kubeconfig as kubectl does: --kubeconfig, else KUBECONFIG, else ~/.kube/config. */
  constructor(flags: ConnectionFlags) {
    this.#config = loadConfig(flags);
    const cluster = this.#config.getCurrentCluster();
    if (cluster === null) {
      throw new CommandFailure(
        "usage",
        `the kubeconfig's context "${this.#config.getCurrentContext()}" names no cluster that is in it`,
        "choose another one with --context",
      );
    }
    this.server = cluster.server.replace(/\/+$/, "");
    const context = this.#config.getContextObject(this.#config.getCurrentContext());
    this.namespace = flags.namespace ?? context?.namespace ?? "default";
  }

  /** The user's name in the kubeconfig, for messages. */
  get user(): string {
    return this.#config.getCurrentUser()?.name ?? "anonymous";
  }

  /** Options of a request to `path`, with agent, certificates and headers of the user. */
  async options(path: string, call: Call = {}): Promise<RequestOptions> {
    const { options: credentials } = await this.#fresh();
    const url = new URL(this.server + path);
    return {
      ...credentials,
      protocol: url.protocol,
      hostname: url.hostname.replace(/^\[|\]$/g, ""),
      port: url.port,
      path: url.pathname + url.search,
      method: call.method ?? "GET",
      headers: { ...call.headers, ...(credentials.headers as OutgoingHttpHeaders | undefined) },
      ...(call.signal === undefined ? {} : { signal: call.signal }),
    };
  }

  /** The answer, whatever its status. @throws {CommandFailure} when the API server can't be reached */
  async open(path: string, call: Call = {}): Promise<IncomingMessage> {
    const options = await this.options(path, call);
    return new Promise((resolve, reject) => {
      const request = send(options, (response) => {
        request.setTimeout(0);
        resolve(response);
      });
      request.setTimeout(answerTimeoutMs, () => {
        request.destroy(new Error(`no answer within ${answerTimeoutMs / 1000} s`));
      });
      request.on("error", (error) => {
        reject(call.signal?.aborted === true ? error : this.unreachable(error));
      });
      request.end(call.body);
    });
  }

  /** The answer's status and text. */
  async ask(path: string, call: Call = {}): Promise<{ status: number; body: string }> {
    const response = await this.open(path, call);
    try {
      return { status: response.statusCode ?? 0, body: await text(response) };
    } catch (error) {
      throw call.signal?.aborted === true ? error : this.unreachable(error);
    }
  }

  unreachable(cause: unknown): CommandFailure {
    const reason = cause instanceof Error ? cause.message : String(cause);
    return new CommandFailure(
      "unavailable",
      `the API server ${this.server} can't be reached: ${reason}`,
      `check that the cluster runs and that the kubeconfig's context "${this.#config.getCurrentContext()}" is the right one`,
      cause,
    );
  }

  async #fresh(): Promise<{ options: RequestOptions }> {
    const now = performance.now();
    if (this.#credentials !== undefined && now - this.#credentials.readAt < credentialsFreshMs) {
      return this.#credentials;
    }
    const options: RequestOptions = {};
    try {
      await this.#config.applyToHTTPSOptions(options);
    } catch (error) {
      throw new CommandFailure(
        "forbidden",
        `the credentials of the kubeconfig's user "${this.user}" can't be read: ${error instanceof Error ? error.message : String(error)}`,
        undefined,
        error,
      );
    }
    // client-node's agents open a connection per request; only where a proxy is named is its own one needed
    if (this.#config.getCurrentCluster()?.proxyUrl === undefined && this.server.startsWith("https:")) {
      options.agent = new Agent({ keepAlive: true });
    }
    this.#credentials = { options, readAt: now };
    return this.#credentials;
  }
}

/** node:http and node:https behind one call, by the options' protocol. */
export function send(
  options: RequestOptions,
  onResponse: (response: IncomingMessage) => void,
): ReturnType<typeof httpRequest> {
  return options.protocol === "http:" ? httpRequest(options, onResponse) : httpsRequest(options, onResponse);
}

function loadConfig(flags: ConnectionFlags): KubeConfig {
  const config = new KubeConfig();
  try {
    if (flags.kubeconfig === undefined) config.loadFromDefault();
    else config.loadFromFile(flags.kubeconfig);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new CommandFailure("usage", `the kubeconfig can't be read: ${reason}`, undefined, error);
  }
  if (flags.context !== undefined) {
    if (config.getContextObject(flags.context) === null) {
      const known = config.getContexts().map((context) => context.name);
      throw new CommandFailure(
        "usage",
        `the kubeconfig has no context "${flags.context}"`,
        `it has ${known.join(", ") || "none"}`,
      );
    }
    config.setCurrentContext(flags.context);
  }
  // what client-node makes up where it finds no file at all
  if (config.getCurrentCluster()?.server === "http://localhost:8080") {
    throw new CommandFailure(
      "usage",
      "there is no kubeconfig",
      "name one with --kubeconfig FILE or the environment variable KUBECONFIG",
    );
  }
  return config;
}
