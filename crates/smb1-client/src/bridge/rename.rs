//! Renames. SMB1 has two: one by the Open, within its directory, that replaces another file at once, on
//! servers with pass-through levels; and one by names, that replaces nothing.

use frevo_smb1::info::{self, SetLevel, Subject};
use frevo_smb1::names;
use frevo_smb1::negotiate::Capabilities;
use frevo_smb1::open;
use frevo_wire::Status;

use super::server::{Failed, Open, Server};

impl Server {
    /// Renames the file of an Open to the path `to` below the share.
    pub(super) async fn rename(&self, open: &Open, to: &str, replace: bool) -> Result<(), Failed> {
        let from = open.path();
        let to = format!("\\{}", to.trim_start_matches('\\'));
        if names::has_wildcards(&to) {
            return Err(Failed::Status(Status::OBJECT_NAME_INVALID));
        }
        match self.rename_by_open(open, &from, &to, replace).await {
            Ok(()) => {}
            // The server does not have the level, or not for this Open.
            Err(Failed::Status(
                Status::NOT_SUPPORTED
                | Status::NOT_IMPLEMENTED
                | Status::INVALID_INFO_CLASS
                | Status::INVALID_LEVEL
                | Status::INVALID_PARAMETER,
            )) => self.rename_by_name(open, &from, &to, replace).await?,
            Err(why) => return Err(why),
        }
        *open.path.lock() = to;
        Ok(())
    }

    async fn rename_by_open(
        &self,
        open: &Open,
        from: &str,
        to: &str,
        replace: bool,
    ) -> Result<(), Failed> {
        let (directory, _) = from.rsplit_once('\\').unwrap_or_default();
        let (other, name) = to.rsplit_once('\\').unwrap_or_default();
        if !self.has(Capabilities::INFOLEVEL_PASSTHRU) || directory != other {
            return Err(Failed::Status(Status::NOT_SUPPORTED));
        }
        let data = info::rename_data(name, replace);
        let place = Subject::Open(open.fid()?);
        let request = info::set(self.charset(), place, SetLevel::RENAME, &data)?;
        self.ask(open.tree.number, &request).await.map(drop)
    }

    async fn rename_by_name(
        &self,
        open: &Open,
        from: &str,
        to: &str,
        replace: bool,
    ) -> Result<(), Failed> {
        let (charset, tree) = (self.charset(), open.tree.number);
        // Servers refuse to rename a file that is open.
        let fid = open.fid.lock().take();
        if let Some(fid) = fid {
            self.ask(tree, &open::close(fid)).await?;
        }
        let rename = names::rename(charset, from, to)?;
        match self.ask(tree, &rename).await {
            Err(Failed::Status(Status::OBJECT_NAME_COLLISION | Status::OBJECT_NAME_EXISTS))
                if replace && !from.eq_ignore_ascii_case(to) =>
            {
                // Deviation: between the two requests there is no file with this name. SMB1 has nothing
                // better.
                self.ask(tree, &names::delete(charset, to)?).await?;
                self.ask(tree, &rename).await.map(drop)
            }
            renamed => renamed.map(drop),
        }
    }
}
