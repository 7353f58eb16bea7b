"""An OTLP/HTTP receiver: reads the real bytes with the classes of opentelemetry-proto."""

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Receiver:
    """Listens on a free port; `statuses` are answered first, one per request.

    With `refusal`, every answer says that one span was rejected, for this reason.
    """

    def __init__(self, statuses=(), refusal=""):
        self.statuses = list(statuses)
        self.requests, self.bodies, self.spans, self.metrics = [], [], [], []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                length = int(self.headers["content-length"])
                body = self.rfile.read(length)
                if len(body) < length:
                    return  # the client gave up
                status = receiver.statuses.pop(0) if receiver.statuses else 200
                if status == 200:
                    receiver.take(self.path, dict(self.headers), body)
                response = ExportTraceServiceResponse()
                if refusal:
                    response.partial_success.rejected_spans = 1
                    response.partial_success.error_message = refusal
                answer = response.SerializeToString()
                self.send_response(status)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def take(self, path, headers, body):
        if headers.get("content-encoding", headers.get("Content-Encoding")) == "gzip":
            body = gzip.decompress(body)
        self.requests.append((path, {name.lower(): value for name, value in headers.items()}))
        self.bodies.append(body)
        if path == "/v1/traces":
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in group.scope_spans:
                    self.spans += scope.spans
        elif path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for measured in resource.scope_metrics:
                    self.metrics += measured.metrics

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def read_attributes(span):
    return {each.key: _read_value(each.value) for each in span.attributes}


def _read_value(value):
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(_read_value(each) for each in value.array_value.values)
    return getattr(value, kind)


def check_tree(spans):
    """Assert that the spans are one connected tree with unique ids and one root; returns the root."""
    ids = {span.span_id for span in spans}
    assert len(ids) == len(spans), "a span was sent twice"
    assert len({span.trace_id for span in spans}) == 1
    roots = [span for span in spans if getattr(span, "parent_span_id", None) not in ids]
    assert len(roots) == 1, [span.name for span in roots]
    for span in spans:
        assert span.start_time_unix_nano <= span.end_time_unix_nano
    return roots[0]
