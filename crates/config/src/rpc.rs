//! `[rpc]`: remote procedure calls over TCP.

use serde::Deserialize;

use super::fault::Fault;
use super::listen::Listen;

/// The port of the endpoint mapper, C706 appendix H.
const ENDPOINT_MAPPER: u16 = 135;

/// `[rpc]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RpcSection {
    /// True to answer remote procedure calls over TCP.
    pub enabled: Option<bool>,
    /// The places to listen on, without ports; those of SMB when left out.
    pub listen: Option<Vec<Listen>>,
    /// The port of the interfaces; 0 for one that the system chooses.
    pub port: Option<u16>,
    /// The port of the endpoint mapper; 0 for no endpoint mapper.
    pub endpoint_mapper_port: Option<u16>,
}

impl RpcSection {
    /// True if calls over TCP are answered.
    pub fn is_on(&self) -> bool {
        self.enabled == Some(true)
    }

    /// The port of the interfaces; 0 for one that the system chooses.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(0)
    }

    /// The port of the endpoint mapper. None for no endpoint mapper.
    pub fn mapper_port(&self) -> Option<u16> {
        Some(self.endpoint_mapper_port.unwrap_or(ENDPOINT_MAPPER)).filter(|port| *port != 0)
    }

    /// Keys that contradict each other.
    pub(super) fn faults(&self) -> Option<Fault> {
        if !self.is_on() {
            return None;
        }
        let fault = |what: &str, hint: &str| Some(Fault::new(what.to_owned()).hint(hint));
        if self.listen.iter().flatten().any(|place| place.port.is_some()) {
            return fault("[rpc] listen has a port", "write the port into the key port");
        }
        if self.port() == 0 && self.mapper_port().is_none() {
            let what = "[rpc] has endpoint_mapper_port = 0 and no port";
            return fault(
                what,
                "no client could find the port: set one, or keep the endpoint mapper",
            );
        }
        if Some(self.port()) == self.mapper_port() {
            let what = "[rpc] port and endpoint_mapper_port are the same";
            return fault(what, "leave port out: the system chooses one");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> Option<String> {
        toml::from_str::<RpcSection>(text).unwrap().faults().map(|fault| fault.what)
    }

    #[test]
    fn contradictions_are_found() {
        for good in [
            "",
            "enabled = true",
            "enabled = true\nport = 5000",
            "enabled = true\nport = 5000\nendpoint_mapper_port = 0",
            "enabled = true\nlisten = [\"eth0\", \"192.0.2.1\"]",
            "port = 135",
        ] {
            assert_eq!(fault(good), None, "{good}");
        }
        for (bad, what) in [
            ("enabled = true\nlisten = [\"192.0.2.1:5000\"]", "listen has a port"),
            ("enabled = true\nendpoint_mapper_port = 0", "no port"),
            ("enabled = true\nport = 135", "the same"),
        ] {
            assert!(fault(bad).is_some_and(|fault| fault.contains(what)), "{bad}");
        }
    }

    #[test]
    fn the_usual_ports() {
        let usual = RpcSection { enabled: Some(true), ..RpcSection::default() };
        assert_eq!((usual.port(), usual.mapper_port()), (0, Some(135)));
        assert!(usual.is_on() && !RpcSection::default().is_on());
    }
}
