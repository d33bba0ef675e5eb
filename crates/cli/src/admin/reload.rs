//! `frevo reload`.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::arguments::ReloadArguments;
use super::figures::text;
use super::socket::ask;
use super::status::parsed;
use crate::console::{print, tell};
use crate::exit::{Done, Exit, Failure};
use crate::printable::printable;

pub(super) async fn run(arguments: &ReloadArguments) -> Done {
    let answer = match ask(&arguments.place, "/reload", Some("")).await {
        // The interface answers 409 where the configuration is refused.
        Err(failure) if failure.exit == Exit::Usage => {
            let text = format!(
                "the configuration is refused, and the one before stays in force: {}",
                failure.message
            );
            return Err(Failure::new(Exit::Config, text));
        }
        Err(failure) => match (arguments.pid, failure.exit) {
            (Some(pid), Exit::Connect) => return signal(pid, &failure),
            _ => return Err(failure),
        },
        Ok(answer) => answer,
    };
    if arguments.place.json {
        return print(&[&answer[..], b"\n"].concat());
    }
    for share in parsed(&answer)?["not_served"].as_array().into_iter().flatten() {
        tell(not_served(share));
    }
    print(b"the configuration was reloaded\n")
}

/// A line about a share that is not served.
pub(super) fn not_served(share: &Value) -> String {
    let (name, reason) = (text(share, "share"), text(share, "reason"));
    format!("the share {} is not served: {}", printable(&name), printable(&reason))
}

/// Asks a process by a signal, which has no answer.
fn signal(pid: i32, failure: &Failure) -> Done {
    let of = Pid::from_raw(pid).filter(|_| pid > 0);
    let pid = of.ok_or_else(|| Failure::new(Exit::Usage, "there is no such process"))?;
    let sent = kill_process(pid, Signal::HUP);
    sent.map_err(Failure::failed(format!("{failure}; and no signal can be sent")))?;
    tell(format_args!(
        "{failure}; SIGHUP was sent to the process, whose log tells if the configuration is refused"
    ));
    Ok(())
}
