//! Which file system a CREATE is about: the share's own, or what it was at an
//! earlier time. MS-SMB2 3.3.5.9.4, and the `@GMT-` components of names that
//! clients write who know no create contexts.

use std::borrow::Cow;
use std::sync::Arc;

use frevo_store::name::{Name, Rules, parts};
use frevo_store::snapshot::Moment;
use frevo_store::{Fault, HostPlaces, Vfs};
use frevo_wire::Status;
use frevo_wire::command::create::{CreateDisposition, CreateOptions, Request};
use frevo_wire::dtyp::{AccessMask, FileTime};

/// Rights that change something, which nothing of a snapshot gives.
const CHANGES: AccessMask = AccessMask(
    AccessMask::WRITE_DATA.0
        | AccessMask::APPEND_DATA.0
        | AccessMask::WRITE_EA.0
        | AccessMask::WRITE_ATTRIBUTES.0
        | AccessMask::DELETE_CHILD.0
        | AccessMask::DELETE.0
        | AccessMask::WRITE_DAC.0
        | AccessMask::WRITE_OWNER.0,
);

/// The file system that is meant, and the name in it.
pub(super) fn choose<'a>(
    live: &Arc<dyn Vfs>,
    text: &'a str,
    timewarp: Option<FileTime>,
    places: &Arc<HostPlaces>,
) -> Result<(Arc<dyn Vfs>, Cow<'a, str>), Status> {
    let found = token(text);
    let Some(time) = timewarp else {
        return match found {
            Some((moment, rest)) if is_warped(live, text)? => then(live, moment, places, rest),
            _ => Ok((Arc::clone(live), Cow::Borrowed(text))),
        };
    };
    let moment = Moment::of(time).ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
    // If the path and the create context both name a snapshot, it must be the same one.
    let rest = found.filter(|(same, _)| *same == moment).map(|(_, rest)| rest);
    then(live, moment, places, rest.unwrap_or(Cow::Borrowed(text)))
}

/// The file system at that time, and the name there. What has nothing by that name, but by an earlier one, is meant by
/// that: it was renamed since, or a folder above it.
/// Deviation: MS-SMB2 3.3.5.9.4 has the open go by the path alone.
fn then<'a>(
    live: &Arc<dyn Vfs>,
    moment: Moment,
    places: &Arc<HostPlaces>,
    text: Cow<'a, str>,
) -> Result<(Arc<dyn Vfs>, Cow<'a, str>), Status> {
    let vfs = snapshot(live, moment, places)?;
    let (path, stream) = text.split_at(text.find(':').unwrap_or(text.len()));
    let Ok(name) = Name::parse(path, Rules::Windows) else { return Ok((vfs, text)) };
    if name.is_root() || !matches!(vfs.stat(&name), Err(Fault::NotFound | Fault::PathNotFound)) {
        return Ok((vfs, text));
    }
    let text = match live.name_in_snapshot(moment, &name) {
        Ok(Some(earlier)) => Cow::Owned(format!("{}{stream}", earlier.path())),
        // The search takes too long for a core thread; see `is_warped`.
        Err(Fault::Leased) => return Err(Fault::Leased.status()),
        Ok(None) | Err(_) => text,
    };
    Ok((vfs, text))
}

fn snapshot(
    live: &Arc<dyn Vfs>,
    moment: Moment,
    places: &Arc<HostPlaces>,
) -> Result<Arc<dyn Vfs>, Status> {
    live.snapshot(moment, places).map_err(|fault| match fault {
        Fault::PathNotFound | Fault::NotADirectory | Fault::PathNotDirectory => {
            Status::OBJECT_NAME_NOT_FOUND
        }
        fault => fault.status(),
    })
}

/// The first component that is a token, and the name without it.
fn token(text: &str) -> Option<(Moment, Cow<'_, str>)> {
    let moment = parts(text, b'\\').find_map(Moment::of_token)?;
    let mut is_left_out = false;
    let rest: Vec<&str> = parts(text, b'\\')
        .filter(|component| {
            let is_token = !is_left_out && Moment::of_token(component).is_some();
            is_left_out |= is_token;
            !is_token
        })
        .collect();
    Some((moment, Cow::Owned(rest.join("\\"))))
}

/// A folder of snapshots may itself be seen in the share: what is there by the
/// name as it stands is what is meant. A share without snapshots has none to
/// mean.
fn is_warped(live: &Arc<dyn Vfs>, text: &str) -> Result<bool, Status> {
    let stands = Name::parse(text, Rules::Windows).is_ok_and(|name| live.stat(&name).is_ok());
    if stands {
        return Ok(false);
    }
    match live.snapshots(&Name::root()) {
        // `Leased` means that the search for snapshots takes too long for a core thread. It is
        // passed on, so that the request starts again on a blocking thread.
        Err(Fault::Leased) => Err(Fault::Leased.status()),
        found => Ok(found.is_ok_and(|all| !all.is_empty())),
    }
}

/// The rights that a CREATE in a snapshot gets: nothing of it is changed. What
/// would make something, or wants rights to change alone, is refused; who wants to
/// read as well gets that, and is refused each change (MS-FSA 2.1.5.1 and 2.1.5.4).
/// Explorer restores files through such handles.
/// Deviation: MS-FSA 2.1.5.1 grants the rights to change as well; what was never
/// granted cannot be forgotten to be refused.
pub(super) fn check_access(
    request: &Request<'_>,
    desired: AccessMask,
) -> Result<AccessMask, Status> {
    let makes =
        !matches!(request.create_disposition, CreateDisposition::OPEN | CreateDisposition::OPEN_IF);
    let deletes = request.create_options.contains(CreateOptions::DELETE_ON_CLOSE);
    let changes_alone = desired.intersects(CHANGES) && !desired.contains(AccessMask::READ_DATA);
    if makes || deletes || changes_alone {
        return Err(Status::MEDIA_WRITE_PROTECTED);
    }
    Ok(readable(true, desired))
}

/// The rights of at most `access` that remain in a snapshot.
pub(super) const fn readable(vfs_is_read_only: bool, access: AccessMask) -> AccessMask {
    if vfs_is_read_only { access.without(CHANGES) } else { access }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_leave_the_name() {
        for (text, rest) in [
            ("@GMT-2024.03.01-00.00.00", ""),
            ("@GMT-2024.03.01-00.00.00\\a\\b", "a\\b"),
            ("a\\@gmt-2024.03.01-00.00.00\\b", "a\\b"),
            ("a\\b\\@GMT-2024.03.01-00.00.00", "a\\b"),
            ("@GMT-2024.03.01-00.00.00\\@GMT-2024.03.02-00.00.00", "@GMT-2024.03.02-00.00.00"),
        ] {
            let (moment, left) = token(text).expect(text);
            assert_eq!(moment.to_string(), "@GMT-2024.03.01-00.00.00");
            assert_eq!(left, rest);
        }
        for text in ["", "a\\b", "x@GMT-2024.03.01-00.00.00", "@GMT-2024.03.01-00.00.00:s"] {
            assert!(token(text).is_none(), "{text}");
        }
    }
}
