//! The words of a server that has started.

use frevo_server::{Server, Share};

use crate::arguments::Serve;
use crate::console::print_text;
use crate::exit::Done;

use super::confine::Confined;
use super::listen::HOW_TO_GET_IT;
use super::listeners::Listeners;
use super::loaded::Loaded;
use super::run_accounts::Password;
use super::start_screen::{Screen, User};

/// The facts of a start that its screen or log tells.
pub(super) struct Hello<'a> {
    pub(super) arguments: &'a Serve,
    pub(super) doors: &'a Listeners,
    /// The port of remote procedure calls over TCP, if they are answered.
    pub(super) rpc_port: Option<u16>,
    pub(super) confined: &'a Confined,
}

impl Hello<'_> {
    /// Shows the start screen. A service, whose output is not looked at, has its log.
    pub(super) async fn say(self, loaded: &Loaded, server: &Server) -> Done {
        let Self { arguments, doors, rpc_port, confined } = self;
        let Listeners { sockets: doors, address, quic } = doors;
        let road = server.file_io().await.unwrap_or_else(|| String::from("threads"));
        let shares = loaded.shares(None);
        let listed: Vec<(&Share, String)> = shares
            .iter()
            .zip(&loaded.shares)
            .map(|(share, open)| (share, open.section.path.get_ref().display().to_string()))
            .collect();
        let is_service = arguments.config.is_some() && !rustix::termios::isatty(std::io::stdout());
        if is_service {
            for (share, folder) in &listed {
                tracing::info!(target: "frevo::server", share = %share.name(), folder, "sharing");
            }
            for address in &doors.addresses {
                tracing::info!(target: "frevo::server", %address, road, "listening");
            }
            for address in &quic.addresses {
                tracing::info!(target: "frevo::server", %address, "listening for QUIC");
            }
            tracing::info!(target: "frevo::server", "{}", confined.line());
            if doors.is_second_choice {
                tracing::warn!(target: "frevo::server",
                "this user is not permitted to use port 445; {}", HOW_TO_GET_IT);
            }
            return Ok(());
        }
        let names = loaded.logon.names();
        let user = match &loaded.logon.run_user {
            Some(user) => match &user.password {
                Password::Generated(password) => User::Generated { name: &user.name, password },
                Password::Given => User::Known(&user.name),
            },
            None => names.first().map_or(User::Nobody, |name| User::Known(name)),
        };
        let screen = Screen {
            settings: &loaded.settings,
            shares: &listed,
            address: *address,
            road,
            confined: confined.line(),
            rpc_port,
            quic_port: quic.addresses.first().map(|address| address.port()),
            user,
            is_second_choice: doors.is_second_choice,
        };
        print_text(&screen.render())
    }
}
