//! Requests of the interface and their answers.

use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use frevo_server::audit::{Event, Kind};
use frevo_server::{Kick, Kicked, Rows, Server, StatusQuery};
use frevo_wire::Status;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use hyper::{Method, Request, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::access::{Caller, fault_of, has_token, is_of_another_site};
use crate::answers::{Answer, capture, json, refusal, text};
use crate::capture::CaptureBody;
use crate::connection_slots::PeerSlot;
use crate::health::{Health, ShareHealth};
use crate::history::{self, History};
use crate::limits::{ANSWER_TIME, BODY_BYTES, ROWS_MAX, SNAPSHOTS_TIME};
use crate::quotas::Quotas;
use crate::{Admin, ClusterAct, NotKept, NotRead, ShareSnapshots, SnapshotAct, metrics, page};

/// The interface, as all connections share it.
pub(crate) struct Service {
    admin: Arc<Admin>,
    history: Rc<History>,
    health: Arc<Health>,
    quotas: Quotas,
}

/// The refusal of a request that a page of another site sent.
const OTHER_SITE: &str = "this comes from a page of another site, or asks for another host than \
                          localhost on the admin socket";

/// The refusal of a server on its own.
const NO_CLUSTER: &str = "this server is no node of a cluster; its configuration has no [cluster]";

/// The refusal of a server that makes no snapshots.
const NO_SNAPSHOTS: &str = "this server makes no snapshots; no share of its configuration has [share.snapshots] or keep_deleted";

/// All paths but those of the page.
const PATHS: [&str; 17] = [
    "/status",
    "/metrics",
    "/history",
    "/shares",
    "/log-level",
    "/kick",
    "/release",
    "/capture",
    "/capture/end",
    "/accounts",
    "/reload",
    "/configuration",
    "/cluster",
    "/snapshots",
    "/quotas",
    "/healthz",
    "/readyz",
];

/// The body of `POST /kick` and `POST /release`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KickBody {
    /// `user`, `session`, `open`, `share`, or `any` to find out by the name.
    kind: String,
    name: String,
}

/// The body of `POST /accounts`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AccountsBody {
    /// The account file that was changed.
    file: PathBuf,
}

/// The body of `POST /log-level`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelBody {
    filter: String,
    #[serde(default)]
    client: Option<IpAddr>,
}

impl Service {
    pub(crate) fn new(admin: Arc<Admin>) -> Self {
        Self { admin, history: Rc::default(), health: Arc::default(), quotas: Quotas::default() }
    }

    /// Samples the server for ever.
    pub(crate) fn sampling(&self) -> impl Future<Output = ()> + 'static {
        history::keep(Rc::clone(&self.history), self.admin.server.clone())
    }

    /// Answers a request in bounded time.
    pub(crate) async fn answer(
        &self,
        request: Request<Incoming>,
        caller: Caller,
        slot: &PeerSlot,
    ) -> Answer {
        let is_long = request.uri().path() == "/snapshots" && request.method() == Method::POST;
        let limit = if is_long { SNAPSHOTS_TIME } else { ANSWER_TIME };
        match tokio::time::timeout(limit, self.route(request, caller, slot)).await {
            Ok(answer) => answer,
            Err(_) => refusal(StatusCode::REQUEST_TIMEOUT, "the request took too long"),
        }
    }

    async fn route(&self, request: Request<Incoming>, caller: Caller, slot: &PeerSlot) -> Answer {
        if let Some(why) = fault_of(request.headers(), request.version()) {
            return refusal(StatusCode::BAD_REQUEST, &why);
        }
        let is_get = request.method() == Method::GET;
        match request.uri().path() {
            "/healthz" if is_get => return text(StatusCode::OK, "ok"),
            "/readyz" if is_get => return self.ready(),
            path if is_get => {
                if let Some(file) = page::file(path) {
                    return file;
                }
            }
            _ => {}
        }
        if is_of_another_site(request.headers(), caller) {
            return refusal(StatusCode::FORBIDDEN, OTHER_SITE);
        }
        if caller == Caller::Remote && !self.is_authorized(&request).await {
            let mut answer =
                refusal(StatusCode::UNAUTHORIZED, "this needs the token of the server");
            let scheme = hyper::header::HeaderValue::from_static("Bearer");
            answer.headers_mut().insert(hyper::header::WWW_AUTHENTICATE, scheme);
            return answer;
        }
        slot.is_of_known_peer();
        let path = request.uri().path().to_owned();
        match (request.method(), &*path) {
            (&Method::GET, "/status") => match query_of(request.uri().query().unwrap_or("")) {
                Ok(query) => json(&self.admin.server.status(&query)),
                Err(why) => refusal(StatusCode::BAD_REQUEST, &why),
            },
            (&Method::GET, "/metrics") => self.metrics(),
            (&Method::GET, "/history") => match since_of(request.uri().query().unwrap_or("")) {
                Ok(since) => json(&self.history.columns(since)),
                Err(why) => refusal(StatusCode::BAD_REQUEST, &why),
            },
            (&Method::GET, "/shares") => self.look_at_shares().await,
            (&Method::GET, "/log-level") => json(&self.admin.levels.levels()),
            (&Method::POST, "/log-level") => match body(request).await {
                Ok(LevelBody { filter, client }) => self.set_level(&filter, client),
                Err(answer) => answer,
            },
            (&Method::POST, "/kick") => match body(request).await {
                Ok(wanted) => self.kick(wanted, caller).await,
                Err(answer) => answer,
            },
            (&Method::POST, "/release") => match body(request).await {
                Ok(wanted) => self.release(&wanted, caller),
                Err(answer) => answer,
            },
            (&Method::POST, "/capture") => self.capture(request, caller).await,
            (&Method::POST, "/capture/end") => self.end_capture(),
            (&Method::POST, "/accounts") => self.read_accounts(request).await,
            (&Method::POST, "/reload") => self.reload().await,
            (&Method::GET, "/configuration") => json(&self.admin.configuration.state()),
            (&Method::GET, "/cluster") => self.cluster(),
            (&Method::POST, "/cluster") => match body(request).await {
                Ok(act) => self.act_in_cluster(act, caller).await,
                Err(answer) => answer,
            },
            (&Method::GET, "/quotas") => json(&self.quotas.of(self.admin.quotas.as_ref()).await),
            (&Method::GET, "/snapshots") => json(&self.snapshots()),
            (&Method::POST, "/snapshots") => self.act_on_snapshots(request, caller).await,
            (_, path) if PATHS.contains(&path) || page::file(path).is_some() => {
                refusal(StatusCode::METHOD_NOT_ALLOWED, "this path has no such method")
            }
            _ => refusal(StatusCode::NOT_FOUND, "there is no such path"),
        }
    }

    async fn is_authorized(&self, request: &Request<Incoming>) -> bool {
        let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        has_token(self.admin.token.as_ref(), header).await
    }

    /// Ready: clients are accepted, and there is a share for them.
    fn ready(&self) -> Answer {
        if self.admin.server.is_serving() {
            text(StatusCode::OK, "ready")
        } else {
            text(StatusCode::SERVICE_UNAVAILABLE, "the server starts or stops")
        }
    }

    fn set_level(&self, filter: &str, client: Option<IpAddr>) -> Answer {
        match self.admin.levels.set(filter, client) {
            Ok(levels) => {
                tracing::info!(target: "frevo::admin", filter, client = client.map(tracing::field::display),
                    "the log level was changed");
                json(&levels)
            }
            Err(why) => refusal(StatusCode::BAD_REQUEST, &why),
        }
    }

    /// Begins a capture, whose blocks are the body of the answer.
    async fn capture(&self, request: Request<Incoming>, caller: Caller) -> Answer {
        if caller == Caller::Remote {
            return refusal(StatusCode::FORBIDDEN, "captures are for the admin socket alone");
        }
        let wanted: CaptureBody = match body(request).await {
            Ok(wanted) => wanted,
            Err(answer) => return answer,
        };
        match wanted.begin(&self.admin.server, by_whom(caller)) {
            Ok(blocks) => capture(blocks),
            Err((status, why)) => refusal(status, &why),
        }
    }

    /// Ends the capture under way, whose body then ends.
    fn end_capture(&self) -> Answer {
        match self.admin.server.end_capture() {
            true => json(&serde_json::json!({ "ended": true })),
            false => refusal(StatusCode::NOT_FOUND, "there is no capture"),
        }
    }

    async fn read_accounts(&self, request: Request<Incoming>) -> Answer {
        let AccountsBody { file } = match body(request).await {
            Ok(wanted) => wanted,
            Err(answer) => return answer,
        };
        match self.admin.accounts.read_again(file).await {
            Ok(reviewed) => json(&reviewed),
            Err(NotRead::OtherFile) => {
                refusal(StatusCode::NOT_FOUND, "the accounts of this server are in another file")
            }
            Err(NotRead::Failed(why)) => refusal(StatusCode::CONFLICT, &why),
        }
    }

    async fn reload(&self) -> Answer {
        match self.admin.configuration.reload().await {
            Ok(()) => {
                let not_served = self.admin.configuration.state().not_served;
                json(&serde_json::json!({ "reloaded": true, "not_served": not_served }))
            }
            Err(why) => refusal(StatusCode::CONFLICT, &why),
        }
    }

    fn metrics(&self) -> Answer {
        self.health.look(&self.admin.server);
        let cluster = self.admin.cluster.as_ref().map(|cluster| cluster.view());
        metrics::answer(&self.admin.server, self.shares(), cluster, self.snapshots())
    }

    async fn look_at_shares(&self) -> Answer {
        self.health.look(&self.admin.server);
        self.health.settle().await;
        json(&self.shares())
    }

    /// The health of shares: first those of the configuration that are not served.
    fn shares(&self) -> Rows<ShareHealth> {
        let not_served = self.admin.configuration.state().not_served;
        let Rows { rows, more } = self.health.rows();
        let absent = not_served.into_iter().map(ShareHealth::not_served);
        Rows { rows: absent.chain(rows).collect(), more }
    }

    fn cluster(&self) -> Answer {
        match &self.admin.cluster {
            Some(cluster) => json(&cluster.view()),
            None => refusal(StatusCode::NOT_FOUND, NO_CLUSTER),
        }
    }

    /// The snapshots of each share; none if the server makes none.
    fn snapshots(&self) -> Vec<ShareSnapshots> {
        self.admin.snapshots.as_ref().map(|keeper| keeper.view()).unwrap_or_default()
    }

    async fn act_on_snapshots(&self, request: Request<Incoming>, caller: Caller) -> Answer {
        let act: SnapshotAct = match tokio::time::timeout(ANSWER_TIME, body(request)).await {
            Ok(Ok(act)) => act,
            Ok(Err(answer)) => return answer,
            Err(_) => return refusal(StatusCode::REQUEST_TIMEOUT, "the request took too long"),
        };
        let Some(keeper) = &self.admin.snapshots else {
            return refusal(StatusCode::NOT_FOUND, NO_SNAPSHOTS);
        };
        match keeper.act(act, by_whom(caller)).await {
            Ok(snapshots) => json(&snapshots),
            Err(NotKept::NoSuch(why)) => refusal(StatusCode::NOT_FOUND, &why),
            Err(NotKept::Failed(why)) => refusal(StatusCode::CONFLICT, &why),
        }
    }

    async fn act_in_cluster(&self, act: ClusterAct, caller: Caller) -> Answer {
        let Some(cluster) = &self.admin.cluster else {
            return refusal(StatusCode::NOT_FOUND, NO_CLUSTER);
        };
        let event = event_of(&act).with("by", by_whom(caller));
        let done = cluster.act(act).await;
        if let Some(audit) = self.admin.server.audit() {
            audit.emit(match &done {
                Ok(()) => event,
                Err(why) => event.status(Status::UNSUCCESSFUL).with("reason", why.clone()),
            });
        }
        match done {
            Ok(()) => json(&cluster.view()),
            Err(why) => refusal(StatusCode::CONFLICT, &why),
        }
    }

    async fn kick(&self, wanted: KickBody, caller: Caller) -> Answer {
        let server = &self.admin.server;
        let target = match target_of(server, &wanted) {
            Ok(target) => target,
            Err((status, why)) => return refusal(status, &why),
        };
        let kicked = server.kick(&target, by_whom(caller)).await;
        let Kicked { sessions, tree_connects, opens, rpc_connections, .. } = kicked;
        if kicked.is_nothing() {
            let why = format!("{target} names nothing that can be ended");
            return refusal(StatusCode::NOT_FOUND, &why);
        }
        json(&serde_json::json!({
            "target": target.to_string(),
            "sessions": sessions,
            "connects": tree_connects,
            "opens": opens,
            "rpc_connections": rpc_connections,
        }))
    }

    /// Lets go of clients that the brake of a share has hold of.
    fn release(&self, wanted: &KickBody, caller: Caller) -> Answer {
        let server = &self.admin.server;
        let target = match held_of(server, wanted) {
            Ok(target) => target,
            Err((status, why)) => return refusal(status, &why),
        };
        match server.release(&target, by_whom(caller)) {
            0 => {
                let why = format!("no brake has hold of {target}");
                refusal(StatusCode::NOT_FOUND, &why)
            }
            released => json(&serde_json::json!({
                "target": target.to_string(),
                "released": released,
            })),
        }
    }
}

/// The event of the audit log for an act of an administrator.
fn event_of(act: &ClusterAct) -> Event {
    let event = |change| Event::new(Kind::Cluster).with("change", change);
    match act {
        ClusterAct::Move { share, node } => {
            event("move").with("node", node.clone()).with("unit", share.clone())
        }
        ClusterAct::Drain { node } => event("drain").with("node", node.clone()),
        ClusterAct::Undrain { node } => event("undrain").with("node", node.clone()),
        ClusterAct::Raise { dialect } => event("raise").with("dialect", dialect.clone()),
        ClusterAct::MoveClient { client, node } => {
            event("move-client").with("node", node.clone()).with("client", client.clone())
        }
    }
}

/// The word for the way by which an administrator came.
const fn by_whom(caller: Caller) -> &'static str {
    match caller {
        Caller::Local => "admin socket",
        Caller::Remote => "admin token",
    }
}

/// The target that the words of a request mean.
fn target_of(server: &Server, wanted: &KickBody) -> Result<Kick, (StatusCode, String)> {
    let name = wanted.name.trim();
    let number = || {
        let digits = name.strip_prefix("0x").unwrap_or(name);
        u64::from_str_radix(digits, 16).map_err(|_| {
            let why = format!("\"{name}\" is no id; frevo status and frevo opens show ids");
            (StatusCode::BAD_REQUEST, why)
        })
    };
    match &*wanted.kind {
        "user" => Ok(Kick::User(name.to_owned())),
        "share" => Ok(Kick::Share(name.to_owned())),
        "session" => number().map(Kick::Session),
        "open" => number().map(Kick::Open),
        "rpc" => number().map(Kick::Rpc),
        "any" => find(server, name),
        other => {
            let why = format!("\"{other}\" is none of user, session, open, share, rpc, any");
            Err((StatusCode::BAD_REQUEST, why))
        }
    }
}

/// The target of a release. A name without a kind is that of a session or a user: both may have gone.
fn held_of(server: &Server, wanted: &KickBody) -> Result<Kick, (StatusCode, String)> {
    let name = wanted.name.trim();
    if wanted.kind != "any" {
        return target_of(server, wanted);
    }
    let id = name.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    Ok(id.map_or_else(|| Kick::User(name.to_owned()), Kick::Session))
}

/// Finds out what a name without a kind means.
fn find(server: &Server, name: &str) -> Result<Kick, (StatusCode, String)> {
    let mut query = StatusQuery::default();
    query.limit = ROWS_MAX;
    (query.locks, query.leases) = (false, false);
    let status = server.status(&query);
    let is_same = |other: &str| Kick::names_one(other, name);
    let id = name.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let mut found = Vec::new();
    if status.sessions.rows.iter().any(|row| is_same(&row.user))
        || status.opens.rows.iter().any(|row| is_same(&row.user))
        || status.rpc_connections.rows.iter().filter_map(|row| row.user.as_deref()).any(is_same)
    {
        found.push(Kick::User(name.to_owned()));
    }
    if status.shares.rows.iter().any(|row| is_same(&row.name)) {
        found.push(Kick::Share(name.to_owned()));
    }
    if let Some(id) = id {
        found.extend(
            status.sessions.rows.iter().any(|row| is_same(&row.id)).then_some(Kick::Session(id)),
        );
        found
            .extend(status.opens.rows.iter().any(|row| is_same(&row.id)).then_some(Kick::Open(id)));
    }
    match found.len() {
        1 => found.pop().ok_or((StatusCode::NOT_FOUND, String::new())),
        0 => Err((
            StatusCode::NOT_FOUND,
            format!("no session, user, open file or share is called \"{name}\""),
        )),
        _ => Err((
            StatusCode::CONFLICT,
            format!("\"{name}\" is a user and a share; write user:{name} or share:{name}"),
        )),
    }
}

/// Reads the body of a request as JSON.
async fn body<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Answer> {
    let bytes = Limited::new(request.into_body(), BODY_BYTES).collect().await;
    let bytes =
        bytes.map_err(|_| refusal(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"))?;
    serde_json::from_slice(&bytes.to_bytes())
        .map_err(|error| refusal(StatusCode::BAD_REQUEST, &format!("the body: {error}")))
}

/// The status that the query of a URL asks for: `parts=sessions,opens&limit=10&user=ann`.
fn query_of(text: &str) -> Result<StatusQuery, String> {
    let mut query = StatusQuery::default();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match key {
            "limit" => {
                let limit: usize =
                    value.parse().map_err(|_| format!("limit={value} is not a number"))?;
                query.limit = limit.min(ROWS_MAX);
            }
            "parts" => {
                let has = |part: &str| value.split(',').any(|one| one == part);
                (query.opens, query.locks, query.leases) =
                    (has("opens"), has("locks"), has("leases"));
            }
            "latencies" => query.latencies = value != "no",
            "user" => query.user = Some(decoded(value)?),
            "share" => query.share = Some(decoded(value)?),
            _ => return Err(format!("there is no parameter {key}")),
        }
    }
    Ok(query)
}

/// The sample after which the query of a URL asks: `since=17`; 0 for all.
fn since_of(text: &str) -> Result<u64, String> {
    match text.strip_prefix("since=") {
        Some(number) => number.parse().map_err(|_| format!("{text} is not the number of a sample")),
        None if text.is_empty() => Ok(0),
        None => Err(format!("there is no parameter {text}")),
    }
}

/// Decodes `%41` and `+` of a URL's query.
fn decoded(text: &str) -> Result<String, String> {
    let wrong = || format!("\"{text}\" is not valid in a URL");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
                u8::try_from(high << 4 | low).map_err(|_| wrong())?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_bounded_and_decoded() {
        let query =
            query_of("limit=999999999&parts=opens,locks&user=a%20b%c3%a4&share=x+y").unwrap();
        assert_eq!(query.limit, ROWS_MAX);
        assert_eq!((query.opens, query.locks, query.leases), (true, true, false));
        assert_eq!(query.user.as_deref(), Some("a b\u{e4}"));
        assert_eq!(query.share.as_deref(), Some("x y"));
        for bad in ["limit=-1", "limit=x", "user=%", "user=%4", "user=%zz", "user=%ff", "what=1"] {
            assert!(query_of(bad).is_err(), "{bad}");
        }
        assert!(query_of("").unwrap().leases && query_of("").unwrap().latencies);
        assert!(!query_of("latencies=no").unwrap().latencies);
        assert_eq!((since_of(""), since_of("since=7")), (Ok(0), Ok(7)));
        assert!(since_of("since=").is_err() && since_of("limit=1").is_err());
    }
}
