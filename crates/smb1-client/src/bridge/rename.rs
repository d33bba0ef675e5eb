//! Renames. SMB1 has two: one by the Open, within its directory, that replaces another file at once, on
//! servers with pass-through levels; and one by names, that replaces nothing.

use frevo_smb1::Charset;
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
        let has_level = self.has(Capabilities::INFOLEVEL_PASSTHRU);
        // The name is UTF-16, which only a connection with Unicode reads as that.
        if !has_level || directory != other || self.charset() != Charset::Unicode {
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
                if replace && from.to_lowercase() != to.to_lowercase() =>
            {
                self.replace_by_name(tree, from, to).await
            }
            renamed => renamed.map(drop),
        }
    }

    /// Renames a file to the name of another one, which is put aside first and removed at last. Where a
    /// step fails, the steps before it are undone: `to` can be another name of the same file.
    async fn replace_by_name(&self, tree: u16, from: &str, to: &str) -> Result<(), Failed> {
        let charset = self.charset();
        let aside = self.aside(to)?;
        self.ask(tree, &names::rename(charset, to, &aside)?).await?;
        if let Err(why) = self.ask(tree, &names::rename(charset, from, to)?).await {
            self.ask(tree, &names::rename(charset, &aside, to)?).await?;
            return Err(why);
        }
        if let Err(why) = self.ask(tree, &names::delete(charset, &aside)?).await {
            self.ask(tree, &names::rename(charset, to, from)?).await?;
            self.ask(tree, &names::rename(charset, &aside, to)?).await?;
            return Err(why);
        }
        Ok(())
    }

    /// Returns an unused name in the directory of `path`, which servers with names of 8.3 take, too.
    fn aside(&self, path: &str) -> Result<String, Failed> {
        let mut bytes = [0; 4];
        if !self.logon.ambient.random(&mut bytes) {
            return Err(Failed::Status(Status::INSUFFICIENT_RESOURCES));
        }
        let (directory, _) = path.rsplit_once('\\').unwrap_or_default();
        Ok(format!("{directory}\\FR{:06X}.TMP", u32::from_ne_bytes(bytes) & 0x00FF_FFFF))
    }
}
