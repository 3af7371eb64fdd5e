import { GetObjectCommand, PutObjectCommand, S3Client } from "@aws-sdk/client-s3";
import { beforeAll, expect, it } from "vitest";
import { eventually } from "../support/poll.ts";
import { describeOnCluster } from "./describe.ts";
import { layoutOf, TESTPOD_IMAGE, testpodArchives } from "./harness/images.ts";
import { belongings } from "./harness/remains.ts";
import { podsByNode, testpodManifests } from "./testpod.ts";

const WAIT_MS = 60_000;

describeOnCluster("a cluster of two real nodes", {}, (cluster) => {
  const pods = async () => podsByNode(await cluster().kubectl(["get", "pods", "-l", "app=testpod", "-o", "json"]));
  const address = async (node: string): Promise<string> => {
    const found = (await pods()).get(node)?.address;
    if (found === undefined || found === "") throw new Error(`no pod with an address on ${node}`);
    return found;
  };
  /** What the pod on that node gets from the URL. */
  const from = async (node: string, url: string): Promise<string> => {
    const query = new URLSearchParams({ url }).toString();
    const answer = await cluster().fetch(`http://${await address(node)}:8080/fetch?${query}`, {
      signal: AbortSignal.timeout(10_000),
    });
    const text = await answer.text();
    if (answer.status !== 200) throw new Error(`${url} from the pod on ${node}: ${answer.status} ${text}`);
    return text;
  };
  const ready = async (node: string): Promise<string> =>
    cluster().kubectl([...["get", "node", node, "-o"], `jsonpath={.status.conditions[?(@.type=="Ready")].status}`]);

  beforeAll(async () => {
    await cluster().kubectl(["apply", "-f", "-"], { input: testpodManifests() });
    await cluster().kubectl(["wait", "--for=jsonpath={.status.numberReady}=2", "daemonset/testpod", "--timeout=90s"]);
  });

  it("runs a pod on each", async () => {
    expect([...(await pods()).keys()].sort()).toEqual(["n1", "n2"]);
  });

  it("lets pods reach pods, services and names", async () => {
    const second = (await pods()).get("n2");
    expect(await from("n1", `http://${second?.address ?? ""}:8080/name`)).toBe(second?.name);
    const names = [...(await pods()).values()].map((pod) => pod.name);
    for (const node of ["n1", "n2"]) {
      await eventually(
        async () => {
          expect(names).toContain(await from(node, "http://testpod.default.svc.cluster.local/name"));
        },
        { deadlineMs: WAIT_MS },
      );
    }
  });

  it("is reached from this machine by the same names", async () => {
    const answer = await cluster().fetch("http://testpod.default.svc/name");
    expect([...(await pods()).values()].map((pod) => pod.name)).toContain(await answer.text());
  });

  it("gives pods the API server, their token, logs and exec", async () => {
    const name = (await pods()).get("n2")?.name ?? "";
    const base = `http://${await address("n2")}:8080/file?path=/var/run/secrets/kubernetes.io/serviceaccount`;
    expect(await (await cluster().fetch(`${base}/token`)).text()).toMatch(/^ey/);
    expect(await cluster().kubectl(["exec", name, "--", "/testpod", "version"])).toContain("substrate-testpod");
    expect(await cluster().kubectl(["logs", name])).toContain("serving");
  });

  it("brings a changed Secret into running pods", async () => {
    await cluster().kubectl(["patch", "secret", "testpod", "-p", `{"stringData":{"word":"second"}}`]);
    const file = `http://${await address("n1")}:8080/file?path=/secret/word`;
    await eventually(
      async () => {
        expect(await (await cluster().fetch(file)).text()).toBe("second");
      },
      { deadlineMs: WAIT_MS },
    );
  });

  it("has an object store that pods reach", async () => {
    const { url, accessKeyId, secretAccessKey, bucket } = cluster().s3;
    const client = new S3Client({
      endpoint: url,
      region: "us-east-1",
      forcePathStyle: true,
      credentials: { accessKeyId, secretAccessKey },
    });
    try {
      await client.send(new PutObjectCommand({ Bucket: bucket, Key: "a/b", Body: "kept" }));
      const { Body } = await client.send(new GetObjectCommand({ Bucket: bucket, Key: "a/b" }));
      expect(await Body?.transformToString()).toBe("kept");
    } finally {
      client.destroy();
    }
    // without credentials it answers, too
    await expect(from("n1", `${url}/${bucket}/a/b`)).rejects.toThrow(/: 403 [^]*AccessDenied/);
  });

  it("has a registry that nodes pull from", async () => {
    const archives = await testpodArchives(cluster().tools.testpod);
    const archive = archives.find(({ reference }) => reference === TESTPOD_IMAGE);
    const image = await cluster().pushImage(layoutOf(archive?.path ?? ""), "testpod:1");
    await cluster().kubectl([
      ...["run", "pulled", `--image=${image}`, "--image-pull-policy=Always", "--restart=Never"],
      `--overrides={"spec":{"terminationGracePeriodSeconds":1}}`,
    ]);
    await cluster().kubectl(["wait", "--for=condition=Ready", "pod/pulled", "--timeout=60s"]);
  });

  it("notices a dead kubelet, whose pods go on, and its return", async () => {
    const pod = await address("n1");
    await cluster().stopKubelet("n1");
    await eventually(
      async () => {
        expect(await ready("n1")).toBe("Unknown");
      },
      { deadlineMs: WAIT_MS },
    );
    expect((await cluster().fetch(`http://${pod}:8080/name`)).status).toBe(200);
    await cluster().startKubelet("n1");
    await cluster().nodesReady(["n1"]);
  });

  it("loses a node with everything on it, and gets it back", async () => {
    await cluster().killNode("n2");
    await eventually(
      async () => {
        expect(await ready("n2")).toBe("Unknown");
      },
      { deadlineMs: WAIT_MS },
    );
    // Its pods leave the service some moments later.
    await eventually(
      async () => {
        for (let count = 0; count < 4; count += 1) {
          const answer = await cluster().fetch("http://testpod.default.svc/name", {
            signal: AbortSignal.timeout(10_000),
          });
          expect(await answer.text()).toBe((await pods()).get("n1")?.name);
        }
      },
      { deadlineMs: WAIT_MS },
    );
    await cluster().startNode("n2");
    await cluster().nodesReady();
    await eventually(
      async () => {
        expect(await from("n1", `http://${await address("n2")}:8080/name`)).toBe((await pods()).get("n2")?.name);
      },
      { deadlineMs: WAIT_MS },
    );
  });

  it("leaves nothing when it is stopped", async () => {
    const { addresses, folder } = cluster();
    expect(await belongings(addresses, folder)).not.toEqual([]);
    await cluster().stop();
    expect(await belongings(addresses, folder)).toEqual([]);
  });
});
