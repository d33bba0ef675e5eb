//! Commands to a disk of SCSI, by SG_IO of linux `scsi/sg.h`.

use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::null_mut;
use std::time::Duration;

/// SG_IO of scsi/sg.h.
const SG_IO: libc::Ioctl = 0x2285;
/// The interface of `struct sg_io_hdr`.
const INTERFACE: c_int = b'S' as c_int;
/// SG_DXFER_TO_DEV and SG_DXFER_FROM_DEV.
const TO_DISK: c_int = -2;
const FROM_DISK: c_int = -3;
/// Bytes of sense data that are kept.
const SENSE: usize = 64;

/// struct sg_io_hdr of scsi/sg.h.
#[repr(C)]
struct SgIoHdr {
    interface_id: c_int,
    direction: c_int,
    command_length: u8,
    sense_length: u8,
    vectors: u16,
    data_length: c_uint,
    data: *mut c_void,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: c_uint,
    flags: c_uint,
    pack_id: c_int,
    user: *mut c_void,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_written: u8,
    host_status: u16,
    driver_status: u16,
    left: c_int,
    duration_ms: c_uint,
    info: c_uint,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<SgIoHdr>() == 88);

/// The data of a command.
#[derive(Debug)]
pub enum ScsiData<'a> {
    /// Goes to the disk.
    Out(&'a [u8]),
    /// Comes from the disk, into the first bytes.
    In(&'a mut [u8]),
}

/// The end of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScsiEnd {
    /// The status of the disk (SAM-5 5.3): 0 is GOOD.
    pub status: u8,
    /// Sense data, if the status is CHECK CONDITION.
    pub sense: Vec<u8>,
    /// Bytes of data that came or went.
    pub length: usize,
}

/// Sends a command to a disk and waits for its end.
///
/// # Errors
/// ENOTTY if the device is no disk of SCSI, EPERM without CAP_SYS_RAWIO, EIO if the command did not
/// reach the disk, and EINVAL for a command longer than 255 bytes.
pub fn send_scsi(
    device: BorrowedFd<'_>,
    command: &[u8],
    data: ScsiData<'_>,
    patience: Duration,
) -> io::Result<ScsiEnd> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let mut sense = [0; SENSE];
    let (direction, bytes, data_length) = match data {
        ScsiData::Out(bytes) => (TO_DISK, bytes.as_ptr().cast_mut(), bytes.len()),
        ScsiData::In(bytes) => (FROM_DISK, bytes.as_mut_ptr(), bytes.len()),
    };
    let mut header = SgIoHdr {
        interface_id: INTERFACE,
        direction,
        command_length: u8::try_from(command.len()).map_err(|_| invalid())?,
        sense_length: u8::try_from(SENSE).map_err(|_| invalid())?,
        vectors: 0,
        data_length: c_uint::try_from(data_length).map_err(|_| invalid())?,
        data: bytes.cast(),
        command: command.as_ptr(),
        sense: sense.as_mut_ptr(),
        timeout_ms: c_uint::try_from(patience.as_millis()).map_err(|_| invalid())?,
        flags: 0,
        pack_id: 0,
        user: null_mut(),
        status: 0,
        masked_status: 0,
        message_status: 0,
        sense_written: 0,
        host_status: 0,
        driver_status: 0,
        left: 0,
        duration_ms: 0,
        info: 0,
    };
    // SAFETY: `header` has the kernel's layout. Its pointers are to the borrowed command, to `sense` and
    // to the borrowed data, with their lengths; the kernel reads the data for TO_DISK, writes it for
    // FROM_DISK, and keeps no pointer after the call.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), SG_IO, &raw mut header) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // DRIVER_SENSE (8) only says that there is sense data.
    if header.host_status != 0 || header.driver_status & 0x7 != 0 {
        return Err(io::Error::other(format!(
            "the command did not reach the disk (host {}, driver {})",
            header.host_status, header.driver_status
        )));
    }
    let sense = sense.get(..usize::from(header.sense_written)).unwrap_or_default().to_vec();
    let left = usize::try_from(header.left).unwrap_or_default();
    Ok(ScsiEnd { status: header.status, sense, length: data_length.saturating_sub(left) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    #[test]
    fn what_is_no_disk_takes_no_command() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let (patience, command) = (Duration::from_secs(1), [0_u8; 10]);
        let mut room = [0; 8];
        let end = send_scsi(null.as_fd(), &command, ScsiData::In(&mut room), patience);
        assert_eq!(end.unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        let end = send_scsi(null.as_fd(), &[0; 256], ScsiData::Out(&[]), patience);
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
