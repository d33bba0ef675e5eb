//! Records of persistent handles on disk, and a client's copies of them.

use frevo_store::state::OpenRecord;

/// A record as the state store gives it back.
pub fn store_records(data: &[u8]) {
    let Ok(record) = OpenRecord::from_bytes(data) else { return };
    let written = record.to_bytes();
    let again = OpenRecord::from_bytes(&written).expect("what we write we read");
    assert_eq!(again, record);
    assert_eq!(again.to_bytes(), written);
}
