import { Client, type Dispatcher } from "undici";

/** The connection that a request goes out on. */
export interface UpstreamConnection {
  /** Called once for each request when it is written: whether the connection has carried another one before. */
  use(): boolean;
}

/** Options of a dispatch through an Upstream's pool; undici hides handlers from clients, but passes options on. */
export interface UpstreamDispatch extends Dispatcher.DispatchOptions {
  /** Told the connection before `onRequestStart`. */
  user: { onUpstream(connection: UpstreamConnection): void };
}

function hasUser(options: Dispatcher.DispatchOptions): options is UpstreamDispatch {
  return "user" in options;
}

/** One connection of a pool at a time, which knows whether its requests came first. */
export class UpstreamClient extends Client implements UpstreamConnection {
  #carried = false;

  constructor(origin: URL, options: Client.Options) {
    super(origin, options);
    this.on("connect", () => {
      this.#carried = false;
    });
  }

  use(): boolean {
    const before = this.#carried;
    this.#carried = true;
    return before;
  }

  override dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    if (hasUser(options)) options.user.onUpstream(this);
    return super.dispatch(options, handler);
  }
}
