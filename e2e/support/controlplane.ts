import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { toolSettings } from "@substrate/local/config.ts";
import { ControlPlane } from "@substrate/local/control-plane/control-plane.ts";
import { applyCrds, applyPolicies, applyRoles } from "@substrate/local/control-plane/manifests.ts";
import { pickPorts } from "@substrate/local/ports.ts";
import { StateFolder } from "@substrate/local/state-folder.ts";
import { tools } from "./tools.ts";

export interface TestControlPlane {
  /** Path of a kubeconfig of a user in system:masters. */
  kubeconfig: string;
  /** `https://127.0.0.1:PORT` */
  server: string;
  plane: ControlPlane;
  /** A new certificate of the control plane's authority; `CN=…,O=…` become user and groups. */
  issue: ControlPlane["pki"]["authority"]["issue"];
  /** A folder for the test's files; `stop` removes it. */
  folder: string;
  stop: () => Promise<void>;
}

export interface TestControlPlaneOptions {
  /** Default true: apply crds/yaml and the roles of the parts. */
  objects?: boolean;
  /** Default false: also run kube-controller-manager (namespaces end, owners' dependents go). */
  controllers?: boolean;
}

/** etcd and kube-apiserver in a folder of their own, ready and with the project's kinds. */
export async function startControlPlane(options: TestControlPlaneOptions = {}): Promise<TestControlPlane> {
  const folder = mkdtempSync(join(tmpdir(), "sub-cp-"));
  const state = StateFolder.open(folder);
  const lines: string[] = [];
  const remove = (): void => {
    state.close();
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    const plane = await ControlPlane.start({
      state,
      tools,
      ports: await pickPorts(["etcd", "etcdPeer", "apiserver"], {}),
      apiserverAddresses: [],
      environment: toolSettings().environment,
      fsync: false,
      say: (line) => lines.push(line),
    });
    const stop = async (): Promise<void> => {
      await plane.stop();
      remove();
    };
    try {
      if (options.objects ?? true) {
        await applyCrds(plane.client);
        await applyPolicies(plane.client);
        await applyRoles(plane.client);
      }
      if (options.controllers ?? false) await plane.controllerManager.start();
    } catch (error) {
      await stop();
      throw error;
    }
    const issue = plane.pki.authority.issue.bind(plane.pki.authority);
    return { kubeconfig: plane.adminKubeconfig, server: plane.server, plane, issue, folder, stop };
  } catch (error) {
    remove();
    throw lines.length === 0 ? error : new Error(lines.join("\n"), { cause: error });
  }
}
