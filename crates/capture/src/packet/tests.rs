use std::vec;

use super::parse::segment;
use super::*;

fn ends(client: &str, server: &str) -> Ends {
    Ends { client: client.parse().unwrap(), server: server.parse().unwrap() }
}

#[test]
fn a_stream_has_numbers_that_follow_each_other() {
    for (client, server) in [("10.0.0.1:5000", "10.0.0.2:445"), ("[fe80::1]:5000", "[fe80::2]:445")]
    {
        let mut stream = Stream::new(ends(client, server));
        let opening = stream.open();
        let first = segment(101, &opening[0].1, 0).unwrap();
        assert_eq!((first.flags, first.sequence), (SYN, 0));
        assert_eq!((first.from, first.to), (client.parse().unwrap(), server.parse().unwrap()));
        let mut next = 1;
        for len in [1, 4096, crate::limits::SEGMENT_BYTES] {
            let mut packet = stream.data(Sender::Client, len, true);
            packet.extend(vec![7; len]);
            let found = segment(101, &packet, 0).unwrap();
            assert_eq!((found.sequence, found.len, found.payload.len()), (next, len, len));
            next += u32::try_from(len).unwrap();
        }
        let answer = stream.data(Sender::Server, 10, true);
        let acknowledged = answer[answer.len() - 12..answer.len() - 8].try_into().unwrap();
        assert_eq!(u32::from_be_bytes(acknowledged), next);
        assert_eq!(segment(101, &answer, 0).unwrap().sequence, 1);
        assert_eq!(segment(101, &stream.close()[0].1, 0).unwrap().sequence, next);
    }
}

#[test]
fn ends_of_two_families_become_one() {
    let mut stream = Stream::new(ends("10.0.0.1:5000", "[fe80::2]:445"));
    let packet = stream.data(Sender::Client, 0, true);
    let found = segment(101, &packet, 0).unwrap();
    assert_eq!(found.from, "[::ffff:10.0.0.1]:5000".parse().unwrap());
}

#[test]
fn the_checksum_of_a_head_is_right() {
    let mut stream = Stream::new(ends("192.0.2.77:50000", "198.51.100.3:445"));
    let packet = stream.data(Sender::Server, 999, false);
    // The sum over a header with its checksum is zero.
    assert_eq!(checksum(&packet[..20]), 0);
}

#[test]
fn frames_of_other_links_are_read() {
    let mut stream = Stream::new(ends("10.0.0.1:5000", "10.0.0.2:445"));
    let mut packet = stream.data(Sender::Client, 3, true);
    packet.extend([1, 2, 3]);
    let plain = segment(101, &packet, 0).unwrap();
    let with = |head: &[u8]| [head, &packet].concat();
    let mut ethernet = with(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 8, 0]);
    assert_eq!(segment(1, &ethernet, 0), Some(plain));
    // Ethernet pads short frames.
    ethernet.extend([0; 9]);
    assert_eq!(segment(1, &ethernet, 0), Some(plain));
    let tagged = with(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x81, 0, 0, 5, 8, 0]);
    assert_eq!(segment(1, &tagged, 0), Some(plain));
    let mut cooked = vec![0; 14];
    cooked.extend([8, 0]);
    cooked.extend(&packet);
    assert_eq!(segment(113, &cooked, 0), Some(plain));
    let mut cooked = vec![8, 0];
    cooked.extend([0; 18]);
    cooked.extend(&packet);
    assert_eq!(segment(276, &cooked, 0), Some(plain));
    assert_eq!(segment(0, &with(&[2, 0, 0, 0]), 0), Some(plain));
    for cut in 0..packet.len() - 3 {
        assert_eq!(segment(101, &packet[..cut], 0), None, "{cut}");
    }
}
