//! Reads the messages of strangers: SOAP, of which few elements matter.

use quick_xml::Reader;
use quick_xml::events::Event;

use crate::limits::{TEXT_BYTES, XML_DEPTH, XML_EVENTS};

const DISCOVERY: &str = "http://schemas.xmlsoap.org/ws/2005/04/discovery/";
const GET: &str = "http://schemas.xmlsoap.org/ws/2004/09/transfer/Get";

/// A request that this server may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// "Who is of these types?"
    Probe,
    /// "Where is the device with this identifier?"
    Resolve,
    /// "What are you?", over HTTP.
    Get,
}

/// A request, as far as the answer depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) action: Action,
    /// The identifier of the message, which the answer repeats: of harmless characters.
    pub(super) message_id: String,
    /// The types that a probe asks for, without their prefixes. Empty asks for all.
    types: Vec<String>,
    /// The identifier of the device that a resolve or get request is for.
    address: String,
}

impl Request {
    /// Reads a message. None for one that is malformed, too large in any way, or no request.
    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let found = Texts::read(std::str::from_utf8(message).ok()?)?;
        let action = match found.action.as_str() {
            GET => Action::Get,
            other => match other.strip_prefix(DISCOVERY)? {
                "Probe" => Action::Probe,
                "Resolve" => Action::Resolve,
                _ => return None,
            },
        };
        if found.message_id.is_empty() || !found.message_id.chars().all(is_harmless) {
            return None;
        }
        let local = |name: &str| name.rsplit(':').next().unwrap_or_default().to_owned();
        let types = found.types.split_whitespace().map(local).collect();
        let address = if action == Action::Get { found.to } else { found.address };
        Some(Self { action, message_id: found.message_id, types, address })
    }

    /// True when the request is for the device `id`: an identifier, or types that it has.
    pub(super) fn is_for(&self, id: &str) -> bool {
        match self.action {
            Action::Probe => {
                self.types.iter().all(|one| matches!(one.as_str(), "Device" | "Computer"))
            }
            Action::Resolve | Action::Get => {
                let asked = self.address.strip_prefix("urn:uuid:").unwrap_or(&self.address);
                asked.eq_ignore_ascii_case(id)
            }
        }
    }
}

/// True for the characters of identifiers of messages. None of them means anything in XML.
const fn is_harmless(one: char) -> bool {
    one.is_ascii_alphanumeric() || matches!(one, ':' | '-' | '.' | '_' | '/')
}

/// The texts of a message that matter.
#[derive(Debug, Default)]
struct Texts {
    action: String,
    message_id: String,
    to: String,
    types: String,
    address: String,
}

impl Texts {
    fn read(text: &str) -> Option<Self> {
        let mut reader = Reader::from_str(text);
        let mut found = Self::default();
        let mut path: Vec<String> = Vec::new();
        for _ in 0..XML_EVENTS {
            match reader.read_event().ok()? {
                Event::Start(start) => {
                    if path.len() >= XML_DEPTH {
                        return None;
                    }
                    path.push(start.local_name().as_ref().to_owned());
                }
                Event::End(_) => {
                    path.pop()?;
                }
                Event::Text(text) => {
                    let names: Vec<&str> = path.iter().map(String::as_str).collect();
                    if let Some(place) = found.place(&names) {
                        let text = text.trim();
                        if place.len() + text.len() > TEXT_BYTES {
                            return None;
                        }
                        place.push_str(text);
                    }
                }
                // WS-Discovery needs no document type and no entities, and their definitions are
                // dangerous, so the message is refused.
                Event::DocType(_) | Event::GeneralRef(_) => return None,
                Event::Eof => return path.is_empty().then_some(found),
                _ => {}
            }
        }
        None
    }

    /// The place for the text at a path of elements, if it matters.
    fn place(&mut self, path: &[&str]) -> Option<&mut String> {
        match path {
            ["Envelope", "Header", "Action"] => Some(&mut self.action),
            ["Envelope", "Header", "MessageID"] => Some(&mut self.message_id),
            ["Envelope", "Header", "To"] => Some(&mut self.to),
            ["Envelope", "Body", "Probe", "Types"] => Some(&mut self.types),
            ["Envelope", "Body", "Resolve", "EndpointReference", "Address"] => {
                Some(&mut self.address)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A request as Windows writes it.
    pub(in crate::wsd) fn message(action: &str, to: &str, body: &str) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><soap:Envelope \
             xmlns:soap=\"http://www.w3.org/2003/05/soap-envelope\"><soap:Header><wsa:To>{to}\
             </wsa:To><wsa:Action>{action}</wsa:Action><wsa:MessageID>urn:uuid:0a-1</wsa:MessageID>\
             </soap:Header><soap:Body>{body}</soap:Body></soap:Envelope>"
        )
    }

    fn probe(types: &str) -> Option<Request> {
        let body = format!("<wsd:Probe><wsd:Types>{types}</wsd:Types></wsd:Probe>");
        Request::read(message(&format!("{DISCOVERY}Probe"), "urn:x", &body).as_bytes())
    }

    #[test]
    fn requests_of_windows_are_read() {
        let id = "1111-2";
        for types in ["wsdp:Device", "wsdp:Device  pub:Computer", "", "pub:Computer"] {
            let request = probe(types).unwrap();
            assert!(request.is_for(id) && request.message_id == "urn:uuid:0a-1", "{types}");
        }
        assert!(!probe("print:PrintDeviceType").unwrap().is_for(id));
        let body = "<wsd:Resolve><wsa:EndpointReference><wsa:Address>urn:uuid:1111-2\
                    </wsa:Address></wsa:EndpointReference></wsd:Resolve>";
        let resolve = message(&format!("{DISCOVERY}Resolve"), "urn:x", body);
        let resolve = Request::read(resolve.as_bytes()).unwrap();
        assert!(resolve.action == Action::Resolve && resolve.is_for(id) && !resolve.is_for("3"));
        let get = Request::read(message(GET, "urn:uuid:1111-2", "").as_bytes()).unwrap();
        assert!(get.action == Action::Get && get.is_for(id) && !get.is_for(""));
    }

    #[test]
    fn hostile_messages_are_refused() {
        let good = message(&format!("{DISCOVERY}Probe"), "urn:x", "<wsd:Probe/>");
        assert!(Request::read(good.as_bytes()).is_some());
        let deep = "<a>".repeat(XML_DEPTH) + &"</a>".repeat(XML_DEPTH);
        let many = "<a/>".repeat(XML_EVENTS);
        let long = "x".repeat(TEXT_BYTES + 1);
        for wrong in [
            good.replace("urn:uuid:0a-1", "&lt;x"),
            good.replace("urn:uuid:0a-1", "a b\"<x/>"),
            good.replace("urn:uuid:0a-1", ""),
            good.replace("urn:uuid:0a-1", &long),
            good.replace("<soap:Header>", "<!DOCTYPE x [<!ENTITY a \"b\">]><soap:Header>"),
            good.replace("<wsd:Probe/>", &deep),
            good.replace("<wsd:Probe/>", &many),
            good.replace("Probe</wsa:Action>", "Hello</wsa:Action>"),
            good.replace("</soap:Envelope>", ""),
            good.replace("</soap:Body>", "</soap:Bod>"),
        ] {
            assert_eq!(Request::read(wrong.as_bytes()), None, "{wrong}");
        }
        for cut in 0..good.len() {
            let _ = Request::read(&good.as_bytes()[..cut]);
        }
        assert_eq!(Request::read(b"\xff\xfe"), None);
    }
}
