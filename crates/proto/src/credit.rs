//! The cost of a request in credits, MS-SMB2 3.1.5.2, and the check of its CreditCharge, 3.3.5.2.5.

use crate::limits::BYTES_PER_CREDIT;
use frevo_wire::Status;

/// Returns the CreditCharge of an operation whose request or largest response, whichever is more,
/// carries `payload_len` bytes.
pub fn credit_charge_needed(payload_len: u32) -> u16 {
    // The last 64 KiB of 4 GiB would cost 65,536 credits, which does not fit in u16. 65,535 is
    // enough, because no message is that long.
    u16::try_from(payload_len.div_ceil(BYTES_PER_CREDIT).max(1)).unwrap_or(u16::MAX)
}

/// Checks that `credit_charge` covers the payload of the request and the largest response that it
/// asks for. Without multi-credit support there is nothing to check here: other code limits sizes
/// to 64 KiB.
pub fn check_credit_charge(
    is_multi_credit: bool,
    credit_charge: u16,
    request_payload_len: u32,
    response_payload_len: u32,
) -> Result<(), Status> {
    let needed = credit_charge_needed(request_payload_len.max(response_payload_len));
    // A CreditCharge of 0 counts as 1, which covers 64 KiB.
    if is_multi_credit && needed > credit_charge.max(1) {
        return Err(Status::INVALID_PARAMETER);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_credit_for_each_64_kib() {
        for (len, charge) in [
            (0, 1),
            (1, 1),
            (65_535, 1),
            (65_536, 1),
            (65_537, 2),
            (131_072, 2),
            (131_073, 3),
            (8 << 20, 128),
            (u32::MAX, u16::MAX),
        ] {
            assert_eq!(credit_charge_needed(len), charge, "{len}");
        }
    }

    #[test]
    fn charge_has_to_pay_for_the_larger_side() {
        let refused = Err(Status::INVALID_PARAMETER);
        assert_eq!(check_credit_charge(true, 0, 65_536, 0), Ok(()));
        assert_eq!(check_credit_charge(true, 0, 65_537, 0), refused);
        assert_eq!(check_credit_charge(true, 1, 0, 65_537), refused);
        assert_eq!(check_credit_charge(true, 2, 0, 65_537), Ok(()));
        assert_eq!(check_credit_charge(true, 2, 131_072, 131_072), Ok(()));
        assert_eq!(check_credit_charge(true, 2, 1, 131_073), refused);
        assert_eq!(check_credit_charge(false, 0, 1 << 20, 1 << 20), Ok(()));
    }
}
