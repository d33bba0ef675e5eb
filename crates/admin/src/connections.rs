//! Connections of the interface, from acceptance to end.

use std::rc::Rc;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::{Caller, may_connect};
use crate::limits::{CONNECTIONS, HEAD_BYTES, HEAD_TIME, HEADERS};
use crate::{Admin, Listening, routes};

/// Accepts connections for ever.
pub(crate) async fn serve(admin: Arc<Admin>, listening: Listening) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let service = Rc::new(routes::Service::new(admin));
    tokio::task::spawn_local(service.sampling());
    let unix = listening.unix.and_then(|(listener, _)| UnixListener::from_std(listener).ok());
    let tcp = listening.tcp.and_then(|listener| TcpListener::from_std(listener).ok());
    let on_unix = async {
        let Some(listener) = unix else { return std::future::pending().await };
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) if is_permitted(&stream) => {
                    begin(&service, stream, Caller::Local, place);
                }
                Ok(_) => {}
                Err(error) => after_failure(&error).await,
            }
        }
    };
    let on_tcp = async {
        let Some(listener) = tcp else { return std::future::pending().await };
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => begin(&service, stream, Caller::Remote, place),
                Err(error) => after_failure(&error).await,
            }
        }
    };
    tokio::join!(on_unix, on_tcp);
}

/// SO_PEERCRED: the user that connected, whatever it has become since.
fn is_permitted(stream: &UnixStream) -> bool {
    let uid = stream.peer_cred().map(|peer| peer.uid());
    let is_permitted = uid.as_ref().is_ok_and(|uid| may_connect(*uid));
    if !is_permitted {
        tracing::warn!(target: "frevo::admin", uid = uid.unwrap_or(u32::MAX),
            "refused a user at the admin socket: it is for root and the user that runs the server");
    }
    is_permitted
}

/// Without descriptors or memory the next connection would fail too.
async fn after_failure(error: &std::io::Error) {
    tracing::warn!(target: "frevo::admin", %error, "cannot accept a connection");
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
}

fn begin<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    service: &Rc<routes::Service>,
    stream: S,
    caller: Caller,
    place: OwnedSemaphorePermit,
) {
    let service = Rc::clone(service);
    tokio::task::spawn_local(async move {
        let _place = place;
        let answer = service_fn(|request| {
            let service = Rc::clone(&service);
            async move { Ok::<_, std::convert::Infallible>(service.answer(request, caller).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .max_buf_size(HEAD_BYTES)
            .max_headers(HEADERS)
            .serve_connection(TokioIo::new(stream), answer);
        if let Err(error) = connection.await {
            tracing::debug!(target: "frevo::admin", %error, "an admin connection ended");
        }
    });
}
