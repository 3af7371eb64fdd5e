import { stringify } from "yaml";
import { TESTPOD_IMAGE } from "./harness/images.ts";

/** A pod of `substrate-testpod serve` on every node, a Service in front of them, and a Secret in each. */
export function testpodManifests(): string {
  const labels = { app: "testpod" };
  const objects = [
    { apiVersion: "v1", kind: "Secret", metadata: { name: "testpod" }, stringData: { word: "first" } },
    {
      apiVersion: "apps/v1",
      kind: "DaemonSet",
      metadata: { name: "testpod" },
      spec: {
        selector: { matchLabels: labels },
        template: {
          metadata: { labels },
          spec: {
            terminationGracePeriodSeconds: 1,
            containers: [
              {
                name: "testpod",
                image: TESTPOD_IMAGE,
                ports: [{ containerPort: 8080 }],
                readinessProbe: { httpGet: { path: "/name", port: 8080 }, periodSeconds: 1 },
                volumeMounts: [{ name: "secret", mountPath: "/secret" }],
              },
            ],
            volumes: [{ name: "secret", secret: { secretName: "testpod" } }],
          },
        },
      },
    },
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: { name: "testpod" },
      spec: { selector: labels, ports: [{ port: 80, targetPort: 8080 }] },
    },
  ];
  return objects.map((object) => stringify(object)).join("---\n");
}

interface PodList {
  items: { metadata: { name: string }; spec: { nodeName: string }; status: { podIP?: string } }[];
}

/** Name and address of the pod on each node, from `kubectl get pods -o json`. */
export function podsByNode(json: string): Map<string, { name: string; address: string }> {
  const { items } = JSON.parse(json) as PodList;
  return new Map(
    items.map(({ metadata, spec, status }) => [spec.nodeName, { name: metadata.name, address: status.podIP ?? "" }]),
  );
}
