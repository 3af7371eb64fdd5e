import { Gauge, type Registry } from "prom-client";
import { type TlsSource } from "./tls.ts";

/** When this part's own certificate ends: what an alert watches. */
export function exportExpiry(tls: Pick<TlsSource, "expiresMs">, registry: Registry): void {
  const gauge = new Gauge({
    name: "substrate_certificate_expiry_timestamp_seconds",
    help: "When this part's own certificate ends, Unix time",
    registers: [registry],
    collect: () => {
      gauge.set(tls.expiresMs / 1_000);
    },
  });
}
