//! The routes: each request and its handler.

use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, patch, post, put};
use axum::{Extension, Json, Router, body::Bytes};
use ringway_api::Mistake;
use ringway_api::capture::CaptureQuery;
use ringway_api::config::ConfigStatus;
use ringway_api::program::Message;
use ringway_api::types::{Done, FdbEntry, PortStatus, Refusal, Status};
use ringway_config::keys::{Name, Node, PortRef};
use serde::Deserialize;
use utoipa::{IntoParams, OpenApi};

use super::capture;
use super::metrics;
use super::schema::{BucketKeysSchema, PortKeysSchema, SwitchKeysSchema};
use super::server::Lasting;
use crate::daemon::programs;
use crate::daemon::{Refused, SharedDaemon, change, lock};

/// Largest request body in bytes. A port with the most addresses fits.
const BODY_MAX: usize = 256 << 10;

/// Returns the routes of this daemon's API.
pub fn router(daemon: SharedDaemon) -> Router {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/ports", get(ports).post(add_port))
        .route("/v1/ports/{name}", patch(set_port).delete(delete_port))
        .route("/v1/ports/{name}/enable", post(enable_port))
        .route("/v1/ports/{name}/capture", get(capture))
        .route("/v1/captures/{id}", delete(end_capture))
        .route("/v1/buckets/{name}", put(set_bucket).delete(delete_bucket))
        .route("/v1/switches/{name}", patch(set_switch))
        .route("/v1/switches/{name}/tell", post(tell))
        .route("/v1/fdb", get(fdb))
        .route("/v1/config", get(config))
        .route("/v1/config/reset", post(reset_config))
        .route("/v1/reload", post(reload))
        .route("/metrics", get(prometheus))
        .route("/openapi.json", get(async || Json(Description::openapi())))
        .fallback(async || refuse(StatusCode::NOT_FOUND, "there is nothing here: GET /openapi.json says what there is"))
        .method_not_allowed_fallback(async || {
            refuse(StatusCode::METHOD_NOT_ALLOWED, "not with this method: GET /openapi.json says what there is")
        })
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(daemon)
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Ringway", description = "Administration of a ringway daemon, on its control.sock."),
    paths(
        status,
        ports,
        add_port,
        set_port,
        delete_port,
        enable_port,
        capture,
        end_capture,
        set_bucket,
        delete_bucket,
        set_switch,
        tell,
        fdb,
        config,
        reset_config,
        reload,
        prometheus
    ),
    components(schemas(PortKeysSchema, BucketKeysSchema, SwitchKeysSchema, Mistake))
)]
struct Description;

fn refuse(status: StatusCode, error: &str) -> Response {
    (status, Json(Refusal { error: error.to_owned(), mistakes: Vec::new() })).into_response()
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(Refusal::from(self))).into_response()
    }
}

/// Reads a JSON object from a request's body.
fn object(body: Result<Bytes, BytesRejection>) -> Result<serde_json::Map<String, serde_json::Value>, Refused> {
    let body = body.map_err(|e| match e.status() {
        StatusCode::PAYLOAD_TOO_LARGE => Refused::TooLarge(format!("the body has more than {BODY_MAX} bytes")),
        _ => Refused::Malformed(e.body_text()),
    })?;
    serde_json::from_slice(&body).map_err(|e| Refused::Malformed(format!("the body is not a JSON object: {e}")))
}

fn port_ref(text: &str) -> Result<PortRef, Refused> {
    text.parse().map_err(Refused::Malformed)
}

fn name_of(text: &str) -> Result<Name, Refused> {
    text.parse().map_err(Refused::Malformed)
}

fn done(changes: Vec<String>) -> Json<Done> {
    Json(Done { changes })
}

/// Counters, switches, pollers and faults.
#[utoipa::path(get, path = "/v1/status", responses((status = 200, body = Status)))]
async fn status(State(daemon): State<SharedDaemon>) -> Json<Status> {
    Json(lock(&daemon).status())
}

/// All ports.
#[utoipa::path(get, path = "/v1/ports", responses((status = 200, body = [PortStatus])))]
async fn ports(State(daemon): State<SharedDaemon>) -> Json<Vec<PortStatus>> {
    Json(lock(&daemon).status().ports)
}

/// Adds a port.
#[utoipa::path(
    post, path = "/v1/ports", request_body = PortKeysSchema,
    responses((status = 200, body = Done), (status = "4XX", body = Refusal), (status = 500, body = Refusal))
)]
async fn add_port(
    State(daemon): State<SharedDaemon>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Done>, Refused> {
    let mut keys = object(body)?;
    let Some(serde_json::Value::String(name)) = keys.remove("name") else {
        return Err(Refused::Malformed("key \"name\": missing, or not a string; name the port".to_owned()));
    };
    let port = port_ref(&name)?;
    let keys = Node::from_json(&keys.into()).with_dotted_keys();
    change(&daemon, |daemon| daemon.add_port(&port, &keys)).await.map(done)
}

/// Changes a port while frames flow.
#[utoipa::path(
    patch, path = "/v1/ports/{name}", request_body = PortKeysSchema, params(("name" = String, description = "NAME or SWITCH:NAME")),
    responses((status = 200, body = Done), (status = "4XX", body = Refusal), (status = 500, body = Refusal))
)]
async fn set_port(
    State(daemon): State<SharedDaemon>,
    Path(name): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Done>, Refused> {
    let (keys, port) = (object(body)?, port_ref(&name)?);
    let keys = Node::from_json(&keys.into()).with_dotted_keys();
    change(&daemon, |daemon| daemon.set_port(&port, &keys)).await.map(done)
}

/// Removes a port and detaches its client.
#[utoipa::path(
    delete, path = "/v1/ports/{name}",
    params(("name" = String, description = "NAME or SWITCH:NAME; NAME{ID or NAME}ID is an end of a netmap pipe")),
    responses((status = 200, body = Done), (status = "4XX", body = Refusal), (status = 500, body = Refusal))
)]
async fn delete_port(State(daemon): State<SharedDaemon>, Path(name): Path<String>) -> Result<Json<Done>, Refused> {
    let port = port_ref(&name)?;
    change(&daemon, |daemon| daemon.delete_port(&port)).await.map(done)
}

/// Enables a port that is `disabled` because Ringway failed twice within a minute while it served the port, or ends the pause of one
/// that is `paused`.
#[utoipa::path(
    post, path = "/v1/ports/{name}/enable", params(("name" = String, description = "NAME or SWITCH:NAME")),
    responses((status = 200, body = Done), (status = "4XX", body = Refusal))
)]
async fn enable_port(State(daemon): State<SharedDaemon>, Path(name): Path<String>) -> Result<Json<Done>, Refused> {
    let port = port_ref(&name)?;
    change(&daemon, |daemon| daemon.enable_port(&port)).await.map(done)
}

/// Frames of a port as pcapng, while they flow, until the capture ends or the port is removed. The header `ringway-capture` has the
/// capture's number; the trailers `ringway-captured` and `ringway-lost` count frames.
#[utoipa::path(
    get, path = "/v1/ports/{name}/capture",
    params(("name" = String, Path, description = "NAME or SWITCH:NAME"), CaptureQuery),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/x-pcapng"),
        (status = "4XX", body = Refusal), (status = 500, body = Refusal)
    )
)]
async fn capture(
    State(daemon): State<SharedDaemon>,
    Path(name): Path<String>,
    query: Result<Query<CaptureQuery>, QueryRejection>,
    Extension(lasting): Extension<Lasting>,
) -> Result<Response, Refused> {
    let Query(query) = query.map_err(|e| Refused::Malformed(e.body_text()))?;
    let answer = capture::start(&daemon, &port_ref(&name)?, &query)?;
    lasting.set();
    Ok(answer)
}

/// Ends a capture. The captured frames can still be read.
#[utoipa::path(
    delete, path = "/v1/captures/{id}", params(("id" = u64, description = "its number")),
    responses((status = 200, body = Done), (status = "4XX", body = Refusal))
)]
async fn end_capture(State(daemon): State<SharedDaemon>, Path(id): Path<String>) -> Result<Json<Done>, Refused> {
    let id = id.parse().map_err(|_| Refused::Unknown(format!("there is no capture {id}")))?;
    change(&daemon, |daemon| daemon.end_capture(id)).await.map(done)
}

/// Makes a bucket, or replaces all its settings while its ports send.
#[utoipa::path(
    put, path = "/v1/buckets/{name}", request_body = BucketKeysSchema, params(("name" = String, description = "NAME")),
    responses((status = 200, body = Done), (status = "4XX", body = Refusal), (status = 500, body = Refusal))
)]
async fn set_bucket(
    State(daemon): State<SharedDaemon>,
    Path(name): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Done>, Refused> {
    let (keys, name) = (object(body)?, name_of(&name)?);
    let keys = Node::from_json(&keys.into()).with_dotted_keys();
    change(&daemon, |daemon| daemon.set_bucket(&name, &keys)).await.map(done)
}

/// Removes a bucket that no port uses.
#[utoipa::path(
    delete, path = "/v1/buckets/{name}", params(("name" = String, description = "NAME")),
    responses((status = 200, body = Done), (status = "4XX", body = Refusal), (status = 500, body = Refusal))
)]
async fn delete_bucket(State(daemon): State<SharedDaemon>, Path(name): Path<String>) -> Result<Json<Done>, Refused> {
    let name = name_of(&name)?;
    change(&daemon, |daemon| daemon.delete_bucket(&name)).await.map(done)
}

/// Changes a switch while frames flow.
#[utoipa::path(
    patch, path = "/v1/switches/{name}", request_body = SwitchKeysSchema, params(("name" = String, description = "NAME")),
    responses((status = 200, body = Done), (status = "4XX", body = Refusal), (status = 500, body = Refusal))
)]
async fn set_switch(
    State(daemon): State<SharedDaemon>,
    Path(name): Path<String>,
    Extension(lasting): Extension<Lasting>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Done>, Refused> {
    let (keys, name) = (object(body)?, name_of(&name)?);
    let keys = Node::from_json(&keys.into()).with_dotted_keys();
    // A forwarding program may have to be loaded.
    lasting.set();
    change(&daemon, |daemon| daemon.set_switch(&name, &keys)).await.map(done)
}

/// Gives a switch's forwarding program a message.
#[utoipa::path(
    post, path = "/v1/switches/{name}/tell", request_body = Message, params(("name" = String, description = "NAME")),
    responses((status = 200, body = Done), (status = "4XX", body = Refusal), (status = 500, body = Refusal))
)]
async fn tell(
    State(daemon): State<SharedDaemon>,
    Path(name): Path<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Done>, Refused> {
    let (message, name) = (object(body)?, name_of(&name)?);
    let message: Message = serde_json::from_value(message.into())
        .map_err(|error| Refused::Malformed(format!("the body is not {{\"text\": TEXT}}: {error}")))?;
    let program = lock(&daemon).program(&name)?;
    programs::tell(program, message.text).await?;
    Ok(done(vec![format!("told the program of switch {name}")]))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct FdbQuery {
    /// Only this switch.
    switch: Option<String>,
}

/// The addresses that the switches know.
#[utoipa::path(
    get, path = "/v1/fdb", params(FdbQuery),
    responses((status = 200, body = [FdbEntry]), (status = "4XX", body = Refusal))
)]
async fn fdb(
    State(daemon): State<SharedDaemon>,
    query: Result<Query<FdbQuery>, QueryRejection>,
) -> Result<Json<Vec<FdbEntry>>, Refused> {
    let Query(query) = query.map_err(|e| Refused::Malformed(e.body_text()))?;
    let name = query.switch.map(|name| name_of(&name)).transpose()?;
    lock(&daemon).fdb(name.as_ref()).map(Json)
}

/// The running configuration, and what commands changed of the file.
#[utoipa::path(get, path = "/v1/config", responses((status = 200, body = ConfigStatus)))]
async fn config(State(daemon): State<SharedDaemon>) -> Json<ConfigStatus> {
    Json(lock(&daemon).config())
}

/// Drops what commands changed of the configuration file, as it was read last.
#[utoipa::path(
    post, path = "/v1/config/reset",
    responses((status = 200, body = Done), (status = "4XX", body = Refusal), (status = 500, body = Refusal))
)]
async fn reset_config(
    State(daemon): State<SharedDaemon>,
    Extension(lasting): Extension<Lasting>,
) -> Result<Json<Done>, Refused> {
    // Forwarding programs may have to be loaded.
    lasting.set();
    change(&daemon, |daemon| daemon.reset_config()).await.map(done)
}

/// Reads the configuration file again and applies the differences.
#[utoipa::path(
    post, path = "/v1/reload",
    responses((status = 200, body = Done), (status = "4XX", body = Refusal), (status = 500, body = Refusal))
)]
async fn reload(
    State(daemon): State<SharedDaemon>,
    Extension(lasting): Extension<Lasting>,
) -> Result<Json<Done>, Refused> {
    // Forwarding programs may have to be loaded.
    lasting.set();
    change(&daemon, |daemon| daemon.reload()).await.map(done)
}

/// The status for Prometheus: in the text format, or as OpenMetrics if `Accept` names it.
#[utoipa::path(
    get, path = "/metrics",
    responses((status = 200, content(
        (String = "text/plain; version=0.0.4"), (String = "application/openmetrics-text; version=1.0.0")
    )))
)]
async fn prometheus(State(daemon): State<SharedDaemon>, headers: HeaderMap) -> Response {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let format = metrics::Format::for_client(&accept.collect::<Vec<_>>().join(","));
    let status = lock(&daemon).status();
    ([(header::CONTENT_TYPE, format.content_type())], metrics::render(status, format)).into_response()
}
