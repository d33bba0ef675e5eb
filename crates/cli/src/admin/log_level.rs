//! `frevo log-level`.

use frevo_admin::Levels;
use serde_json::json;

use super::arguments::LogLevelArguments;
use super::socket::ask;
use crate::console::print;
use crate::exit::{Done, Failure};
use crate::printable::printable;

pub(super) async fn run(arguments: &LogLevelArguments) -> Done {
    let body = arguments.filter.as_ref().map(|filter| {
        let ends = arguments.client.is_some() && filter.eq_ignore_ascii_case("off");
        let filter = if ends { "" } else { filter };
        json!({ "filter": filter, "client": arguments.client }).to_string()
    });
    let answer = ask(&arguments.place, "/log-level", body.as_deref()).await?;
    if arguments.place.json {
        return print(&[&answer[..], b"\n"].concat());
    }
    let levels: Levels = serde_json::from_slice(&answer)
        .map_err(Failure::failed("the server's answer makes no sense"))?;
    let mut lines = format!("log level: {}\n", printable(&levels.filter));
    if let Some(client) = levels.client {
        lines.push_str(&format!("for {}: {}\n", client.address, printable(&client.filter)));
    }
    print(lines.as_bytes())
}
