//! Writes messages: greetings, answers to probes, and the metadata.

use std::net::IpAddr;

use quick_xml::escape::escape;

use super::shared::{HTTP_PORT, Shared, random_uuid};
use crate::interfaces::Interface;

const ANONYMOUS: &str = "http://schemas.xmlsoap.org/ws/2004/08/addressing/role/anonymous";
const EVERYBODY: &str = "urn:schemas-xmlsoap-org:ws:2005:04:discovery";
const DISCOVERY: &str = "http://schemas.xmlsoap.org/ws/2005/04/discovery";
const GET_RESPONSE: &str = "http://schemas.xmlsoap.org/ws/2004/09/transfer/GetResponse";
const PROFILE: &str = "http://schemas.xmlsoap.org/ws/2006/02/devprof";

/// An envelope with its header. `relates` is the identifier of the request.
fn envelope(shared: &Shared, action: &str, to: &str, relates: Option<&str>, body: &str) -> String {
    let (message, number, instance) = (random_uuid(), shared.next_message(), shared.instance);
    let id = &shared.id;
    let relates = relates
        .map_or_else(String::new, |id| format!("<wsa:RelatesTo>{}</wsa:RelatesTo>", escape(id)));
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><soap:Envelope \
         xmlns:soap=\"http://www.w3.org/2003/05/soap-envelope\" \
         xmlns:wsa=\"http://schemas.xmlsoap.org/ws/2004/08/addressing\" \
         xmlns:wsd=\"{DISCOVERY}\" xmlns:wsdp=\"{PROFILE}\" \
         xmlns:wsx=\"http://schemas.xmlsoap.org/ws/2004/09/mex\" \
         xmlns:pub=\"http://schemas.microsoft.com/windows/pub/2005/07\"><soap:Header>\
         <wsa:To>{to}</wsa:To><wsa:Action>{action}</wsa:Action>\
         <wsa:MessageID>urn:uuid:{message}</wsa:MessageID>{relates}\
         <wsd:AppSequence InstanceId=\"{instance}\" SequenceId=\"urn:uuid:{id}\" \
         MessageNumber=\"{number}\"/></soap:Header><soap:Body>{body}</soap:Body></soap:Envelope>"
    )
}

/// The identifier of the server as an endpoint.
fn endpoint(shared: &Shared) -> String {
    let id = &shared.id;
    format!(
        "<wsa:EndpointReference><wsa:Address>urn:uuid:{id}</wsa:Address></wsa:EndpointReference>"
    )
}

/// The server as a device: its identifier, types, and the address of its metadata.
fn device(shared: &Shared, on: &Interface) -> String {
    let (endpoint, id) = (endpoint(shared), &shared.id);
    let host = match on.address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    format!(
        "{endpoint}<wsd:Types>wsdp:Device pub:Computer</wsd:Types>\
         <wsd:XAddrs>http://{host}:{HTTP_PORT}/{id}</wsd:XAddrs>\
         <wsd:MetadataVersion>1</wsd:MetadataVersion>"
    )
}

/// The greeting of a server that comes.
pub(super) fn hello(shared: &Shared, on: &Interface) -> String {
    let body = format!("<wsd:Hello>{}</wsd:Hello>", device(shared, on));
    envelope(shared, &format!("{DISCOVERY}/Hello"), EVERYBODY, None, &body)
}

/// The greeting of a server that leaves.
pub(super) fn bye(shared: &Shared, _: &Interface) -> String {
    let body = format!("<wsd:Bye>{}</wsd:Bye>", endpoint(shared));
    envelope(shared, &format!("{DISCOVERY}/Bye"), EVERYBODY, None, &body)
}

/// The answer to the probe `request`.
pub(super) fn probe_matches(shared: &Shared, on: &Interface, request: &str) -> String {
    let device = device(shared, on);
    let body =
        format!("<wsd:ProbeMatches><wsd:ProbeMatch>{device}</wsd:ProbeMatch></wsd:ProbeMatches>");
    envelope(shared, &format!("{DISCOVERY}/ProbeMatches"), ANONYMOUS, Some(request), &body)
}

/// The answer to the resolve request `request`.
pub(super) fn resolve_matches(shared: &Shared, on: &Interface, request: &str) -> String {
    let device = device(shared, on);
    let body = format!(
        "<wsd:ResolveMatches><wsd:ResolveMatch>{device}</wsd:ResolveMatch></wsd:ResolveMatches>"
    );
    envelope(shared, &format!("{DISCOVERY}/ResolveMatches"), ANONYMOUS, Some(request), &body)
}

/// The metadata: that this is a computer, its name and its workgroup.
pub(super) fn metadata(shared: &Shared, request: &str) -> String {
    let (id, endpoint) = (&shared.id, endpoint(shared));
    let announcement = &shared.announcement();
    let (name, workgroup) = (escape(&*announcement.name), escape(&*announcement.workgroup));
    let friendly =
        if announcement.comment.is_empty() { name.clone() } else { escape(&*announcement.comment) };
    let section = |dialect: &str, content: String| {
        format!(
            "<wsx:MetadataSection Dialect=\"{PROFILE}/{dialect}\">{content}</wsx:MetadataSection>"
        )
    };
    let version = env!("CARGO_PKG_VERSION");
    let body = [
        section(
            "ThisDevice",
            format!(
                "<wsdp:ThisDevice><wsdp:FriendlyName>{friendly}</wsdp:FriendlyName>\
                 <wsdp:FirmwareVersion>{version}</wsdp:FirmwareVersion>\
                 <wsdp:SerialNumber>1</wsdp:SerialNumber></wsdp:ThisDevice>"
            ),
        ),
        section(
            "ThisModel",
            String::from(
                "<wsdp:ThisModel><wsdp:Manufacturer>Frevo</wsdp:Manufacturer>\
                 <wsdp:ModelName>Frevo</wsdp:ModelName></wsdp:ThisModel>",
            ),
        ),
        section(
            "Relationship",
            format!(
                "<wsdp:Relationship Type=\"{PROFILE}/host\"><wsdp:Host>{endpoint}\
                 <wsdp:Types>pub:Computer</wsdp:Types><wsdp:ServiceId>urn:uuid:{id}\
                 </wsdp:ServiceId><pub:Computer>{name}/Workgroup:{workgroup}</pub:Computer>\
                 </wsdp:Host></wsdp:Relationship>"
            ),
        ),
    ];
    let body = format!("<wsx:Metadata>{}</wsx:Metadata>", body.concat());
    envelope(shared, GET_RESPONSE, ANONYMOUS, Some(request), &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quick_xml::Reader;
    use quick_xml::events::Event;

    fn is_well_formed(text: &str) -> bool {
        let mut reader = Reader::from_str(text);
        loop {
            match reader.read_event() {
                Ok(Event::Eof) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }

    #[test]
    fn messages_are_xml_and_small() {
        let mut announcement = crate::announcement::example();
        announcement.name = String::from("<NAS&\">");
        let shared = Shared::new(announcement);
        let address = "fe80::1".parse().unwrap();
        let on = Interface { name: String::from("eth0"), index: 2, address, prefix: 64 };
        let id = "urn:uuid:1";
        let all = [
            hello(&shared, &on),
            bye(&shared, &on),
            probe_matches(&shared, &on, id),
            resolve_matches(&shared, &on, id),
            metadata(&shared, id),
        ];
        for message in &all {
            assert!(is_well_formed(message), "{message}");
            // An answer is not much longer than a request, and hardly longer than one packet.
            assert!(message.len() < 2_000, "{}", message.len());
        }
        assert!(all[2].contains("http://[fe80::1]:5357/11111111-1111"), "{}", all[2]);
        assert!(all[4].contains("&lt;NAS&amp;&quot;&gt;/Workgroup:WORKGROUP"), "{}", all[4]);
        assert!(all[4].contains("Ann&apos;s &amp; Bob&apos;s"), "{}", all[4]);
        assert!(all[3].contains("MessageNumber=\"4\""));
    }
}
