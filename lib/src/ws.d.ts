/** Of package ws (which brings no types) what is used here. */
declare module "ws" {
  import { type EventEmitter } from "node:events";
  import { type ClientRequest, type IncomingMessage } from "node:http";
  import { type RequestOptions } from "node:https";
  import { type Duplex } from "node:stream";

  class WebSocket extends EventEmitter<{
    open: [];
    message: [data: Buffer, isBinary: boolean];
    close: [code: number, reason: Buffer];
    error: [error: Error];
    pong: [];
    "unexpected-response": [request: ClientRequest, response: IncomingMessage];
  }> {
    readonly protocol: string;
    readonly readyState: 0 | 1 | 2 | 3;
    constructor(url: string, protocols: readonly string[], options: RequestOptions & { perMessageDeflate?: boolean });
    send(bytes: Uint8Array, callback?: (error?: Error | null) => void): void;
    close(code?: number, reason?: string): void;
    terminate(): void;
    ping(): void;
    pause(): void;
    resume(): void;
  }

  class WebSocketServer {
    constructor(options: {
      noServer: true;
      perMessageDeflate: false;
      maxPayload: number;
      handleProtocols: (protocols: Set<string>) => string | false;
    });
    handleUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer, accepted: (client: WebSocket) => void): void;
  }

  export { WebSocket, WebSocketServer };
}
