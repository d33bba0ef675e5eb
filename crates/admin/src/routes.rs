//! Requests of the interface and their answers.

use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use frevo_server::audit::{Event, Kind};
use frevo_server::{Kicked, Rows};
use frevo_wire::Status;
use hyper::body::Incoming;
use hyper::{Method, Request, StatusCode};
use serde::Deserialize;

use crate::access::{Caller, Rights, fault_of, is_of_another_site};
use crate::answers::{Answer, capture, json, refusal, text};
use crate::body::body;
use crate::capture::CaptureBody;
use crate::changes::{self, Changes};
use crate::connection_slots::PeerSlot;
use crate::doors::{Doors, LogonBody, Pass};
use crate::health::{Health, ShareHealth};
use crate::history::{self, History};
use crate::kick::{KickBody, held_of, target_of};
use crate::limits::{ANSWER_TIME, SNAPSHOTS_TIME};
use crate::query::{query_of, since_of};
use crate::quotas::Quotas;
use crate::{
    Admin, ClusterAct, NotKept, NotRead, ShareSnapshots, SnapshotAct, find, metrics, own_password,
    page,
};

/// The interface, as all connections share it.
pub(crate) struct Service {
    admin: Arc<Admin>,
    history: Rc<History>,
    health: Arc<Health>,
    quotas: Quotas,
    doors: Doors,
    changes: Changes,
}

/// The refusal of a request that a page of another site sent.
const OTHER_SITE: &str = "this comes from a page of another site, or asks for another host than \
                          localhost on the admin socket";

/// The refusal of a server on its own.
const NO_CLUSTER: &str = "this server is no node of a cluster; its configuration has no [cluster]";

/// The refusal of a server that makes no snapshots.
const NO_SNAPSHOTS: &str = "this server makes no snapshots; no share of its configuration has [share.snapshots] or keep_deleted";

/// The path on which users change their own passwords, where the configuration wants it.
const PASSWORD: &str = "/password";

/// All paths but those of the page.
const PATHS: [&str; 19] = [
    "/session",
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
    "/find",
    "/healthz",
    "/readyz",
];

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
        let doors = Doors::new(admin.tokens.clone());
        let changes = Changes::new(admin.managing.clone());
        let (history, health, quotas) = (Rc::default(), Arc::default(), Quotas::default());
        Self { admin, history, health, quotas, doors, changes }
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
            PASSWORD if is_get && self.admin.changes_passwords => return page::password(),
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
        if request.method() == Method::POST && request.uri().path() == "/session" {
            return self.log_on(request, caller, slot).await;
        }
        let is_post = request.method() == Method::POST;
        if is_post && request.uri().path() == PASSWORD && self.admin.changes_passwords {
            return own_password::change(request, caller, &self.admin.server).await;
        }
        let admitted = self.doors.admit(request.method(), request.headers(), caller).await;
        let pass = match admitted {
            Ok(pass) => pass,
            Err(answer) => return answer,
        };
        slot.is_of_known_peer();
        self.answer_known(request, pass).await
    }

    /// Answers a request that may see the server.
    async fn answer_known(&self, request: Request<Incoming>, pass: Pass) -> Answer {
        let path = request.uri().path().to_owned();
        match (request.method(), &*path) {
            (&Method::GET, "/session") => self.doors.tell(request.headers(), pass),
            (&Method::DELETE, "/session") => self.doors.log_off(request.headers()),
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
            (&Method::GET, "/configuration") => json(&self.admin.configuration.state()),
            (&Method::GET, "/cluster") => self.cluster(),
            (&Method::GET, "/quotas") => json(&self.quotas.of(self.admin.quotas.as_ref()).await),
            (&Method::GET, "/find") => self.find(request.uri().query().unwrap_or(""), pass).await,
            (&Method::GET, "/snapshots") => json(&self.snapshots()),
            (&Method::POST, _) => match pass.refusal(Rights::Act) {
                None => self.act(request, &path, pass).await,
                Some(refused) => refused,
            },
            (_, path) => self.absent(request, path, pass).await,
        }
    }

    /// Answers a request that changes something.
    async fn act(&self, request: Request<Incoming>, path: &str, pass: Pass) -> Answer {
        match path {
            "/log-level" => match body(request).await {
                Ok(LevelBody { filter, client }) => self.set_level(&filter, client),
                Err(answer) => answer,
            },
            "/kick" => match body(request).await {
                Ok(wanted) => self.kick(wanted, pass).await,
                Err(answer) => answer,
            },
            "/release" => match body(request).await {
                Ok(wanted) => self.release(&wanted, pass),
                Err(answer) => answer,
            },
            "/capture" => self.capture(request, pass).await,
            "/capture/end" => self.end_capture(),
            "/accounts" => self.read_accounts(request).await,
            "/reload" => self.reload().await,
            "/cluster" => match body(request).await {
                Ok(act) => self.act_in_cluster(act, pass).await,
                Err(answer) => answer,
            },
            "/snapshots" => self.act_on_snapshots(request, pass).await,
            path => self.absent(request, path, pass).await,
        }
    }

    /// Answers a request for a path below `/manage`, or for one that has no such method, or is none.
    async fn absent(&self, request: Request<Incoming>, path: &str, pass: Pass) -> Answer {
        if let Some((_, kind)) = changes::PATHS.iter().find(|(of, _)| *of == path) {
            let audit = self.admin.server.audit();
            let answered = self.changes.answer(request, *kind, pass, audit).await;
            return answered.unwrap_or_else(|refused| refused);
        }
        if PATHS.contains(&path) || page::file(path).is_some() {
            return refusal(StatusCode::METHOD_NOT_ALLOWED, "this path has no such method");
        }
        refusal(StatusCode::NOT_FOUND, "there is no such path")
    }

    /// Begins a session of a browser.
    async fn log_on(&self, request: Request<Incoming>, caller: Caller, slot: &PeerSlot) -> Answer {
        let headers = request.headers().clone();
        let wanted: LogonBody = match body(request).await {
            Ok(wanted) => wanted,
            Err(answer) => return answer,
        };
        let begun = self.doors.log_on(&wanted, &headers, caller).await;
        let event = |pass| changes::event("log-on", "", pass);
        let (event, answer) = match begun {
            Ok((pass, answer)) => {
                slot.is_of_known_peer();
                (event(pass), answer)
            }
            Err(answer) => {
                let address = match caller {
                    Caller::Local => None,
                    Caller::Remote(remote) => Some(remote.address),
                };
                let event = event(Pass { rights: Rights::Look, address });
                (event.status(Status::LOGON_FAILURE), answer)
            }
        };
        // Those that are not judged are not recorded: they would fill the log.
        if let Some(audit) = self.admin.server.audit()
            && answer.status() != StatusCode::TOO_MANY_REQUESTS
        {
            audit.emit(event);
        }
        answer
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

    /// Searches in the index of a share. The names of all files are for those who can read them anyway.
    async fn find(&self, query: &str, pass: Pass) -> Answer {
        if pass.address.is_some() {
            return refusal(StatusCode::FORBIDDEN, "searches are for the admin socket alone");
        }
        find::answer(&self.admin.server, query).await
    }

    /// Begins a capture, whose blocks are the body of the answer.
    async fn capture(&self, request: Request<Incoming>, pass: Pass) -> Answer {
        if pass.address.is_some() {
            return refusal(StatusCode::FORBIDDEN, "captures are for the admin socket alone");
        }
        let wanted: CaptureBody = match body(request).await {
            Ok(wanted) => wanted,
            Err(answer) => return answer,
        };
        match wanted.begin(&self.admin.server, pass.by()) {
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

    async fn act_on_snapshots(&self, request: Request<Incoming>, pass: Pass) -> Answer {
        let act: SnapshotAct = match tokio::time::timeout(ANSWER_TIME, body(request)).await {
            Ok(Ok(act)) => act,
            Ok(Err(answer)) => return answer,
            Err(_) => return refusal(StatusCode::REQUEST_TIMEOUT, "the request took too long"),
        };
        let Some(keeper) = &self.admin.snapshots else {
            return refusal(StatusCode::NOT_FOUND, NO_SNAPSHOTS);
        };
        match keeper.act(act, pass.by()).await {
            Ok(snapshots) => json(&snapshots),
            Err(NotKept::NoSuch(why)) => refusal(StatusCode::NOT_FOUND, &why),
            Err(NotKept::Failed(why)) => refusal(StatusCode::CONFLICT, &why),
        }
    }

    async fn act_in_cluster(&self, act: ClusterAct, pass: Pass) -> Answer {
        let Some(cluster) = &self.admin.cluster else {
            return refusal(StatusCode::NOT_FOUND, NO_CLUSTER);
        };
        let event = event_of(&act).with("by", pass.by_and_from());
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

    async fn kick(&self, wanted: KickBody, pass: Pass) -> Answer {
        let server = &self.admin.server;
        let target = match target_of(server, &wanted) {
            Ok(target) => target,
            Err((status, why)) => return refusal(status, &why),
        };
        let kicked = server.kick(&target, &pass.by_and_from()).await;
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
    fn release(&self, wanted: &KickBody, pass: Pass) -> Answer {
        let server = &self.admin.server;
        let target = match held_of(server, wanted) {
            Ok(target) => target,
            Err((status, why)) => return refusal(status, &why),
        };
        match server.release(&target, &pass.by_and_from()) {
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
