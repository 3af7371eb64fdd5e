import {
  PutObjectCommand,
  UploadPartCommand,
  type PutObjectCommandInput,
  type UploadPartCommandInput,
} from "@aws-sdk/client-s3";

// under TLS the client has one of its own for all requests
const middleware = { step: "build", name: "signPayloadHeadersOnly" } as const;

/**
 * Leaves the body out of a request's signature: a sha256 of it costs as much as all the rest of a PUT. The body's CRC
 * is one of the headers that are signed.
 */
export function signHeadersOnly({ request }: { request: unknown }): void {
  if (typeof request === "object" && request !== null && "headers" in request) {
    (request.headers as Record<string, string>)["x-amz-content-sha256"] = "UNSIGNED-PAYLOAD";
  }
}

/** For an object whose sha256, or that of all its parts, is in a document that is signed with its body. */
export function putPayload(input: Omit<PutObjectCommandInput, "Body"> & { Body: Uint8Array }): PutObjectCommand {
  const command = new PutObjectCommand({ ...input, ContentLength: input.Body.length });
  command.middlewareStack.add(
    (next) => (args) => {
      signHeadersOnly(args);
      return next(args);
    },
    middleware,
  );
  return command;
}

/** As putPayload. */
export function uploadPart(input: Omit<UploadPartCommandInput, "Body"> & { Body: Uint8Array }): UploadPartCommand {
  const command = new UploadPartCommand({ ...input, ContentLength: input.Body.length });
  command.middlewareStack.add(
    (next) => (args) => {
      signHeadersOnly(args);
      return next(args);
    },
    middleware,
  );
  return command;
}
