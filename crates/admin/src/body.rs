//! Bodies of requests.

use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use serde::de::DeserializeOwned;

use crate::answers::{Answer, refusal};
use crate::limits::BODY_BYTES;

/// Reads the body of a request as JSON.
pub(crate) async fn body<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Answer> {
    let bytes = Limited::new(request.into_body(), BODY_BYTES).collect().await;
    let bytes =
        bytes.map_err(|_| refusal(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"))?;
    serde_json::from_slice(&bytes.to_bytes())
        .map_err(|error| refusal(StatusCode::BAD_REQUEST, &format!("the body: {error}")))
}
