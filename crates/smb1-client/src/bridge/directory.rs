//! QUERY_DIRECTORY: the entries of a search.

use frevo_smb1::find::{Entry, Level, Page, Search};
use frevo_smb1::negotiate::Capabilities;
use frevo_wire::Status;
use frevo_wire::command::output_head;
use frevo_wire::command::query_directory::{self, QueryDirectoryFlags};
use frevo_wire::dtyp::FileAttributes;
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::directory::{DirectoryEntry, DirectoryWriter};

use super::open::attributes;
use super::reply::Good;
use super::server::{Failed, Listing, Open, Server, named};
use crate::limits::ENTRIES_WAITING_MAX;

impl Server {
    pub(super) async fn query_directory(
        &self,
        message: &[u8],
        related: Option<FileId>,
    ) -> Result<Good, Failed> {
        let request = query_directory::Request::parse(message)?;
        let open = self.open(named(request.file_id, related))?;
        if !open.is_directory {
            return Err(Failed::Status(Status::INVALID_PARAMETER));
        }
        let class = FileInfoClass(request.file_information_class);
        let most = usize::try_from(request.output_buffer_length).unwrap_or(usize::MAX);
        let mut output = Vec::new();
        let Some(mut writer) = DirectoryWriter::new(&mut output, class, most) else {
            return Err(Failed::Status(Status::INVALID_INFO_CLASS));
        };
        let mut listing = open.search.lock().await;
        let restarts = QueryDirectoryFlags::RESTART_SCANS | QueryDirectoryFlags::REOPEN;
        if request.flags.intersects(restarts) || !listing.begun {
            let pattern = request.file_name.to_string()?;
            self.begin_search(&open, &mut listing, &pattern).await?;
        }
        let is_single = request.flags.contains(QueryDirectoryFlags::RETURN_SINGLE_ENTRY);
        loop {
            if listing.waiting.is_empty() && !self.search_on(&open, &mut listing, &writer).await? {
                break;
            }
            let Some(entry) = listing.waiting.front() else { break };
            if writer.push(&written(entry)) == frevo_wire::fscc::Pushed::Full {
                if writer.is_empty() {
                    return Err(Failed::Status(Status::INFO_LENGTH_MISMATCH));
                }
                break;
            }
            listing.waiting.pop_front();
            if is_single {
                break;
            }
        }
        if writer.is_empty() {
            return Err(Failed::Status(Status::NO_MORE_FILES));
        }
        let length = u32::try_from(writer.len()).unwrap_or(u32::MAX);
        Ok(Good::of(|w| {
            w.bytes(&output_head(length)).bytes(&output);
        }))
    }

    fn search(&self) -> Search {
        let level = if self.has(Capabilities::NT_FIND) || self.has(Capabilities::NT_SMBS) {
            Level::BothDirectory
        } else {
            Level::Standard
        };
        Search { charset: self.charset(), level, zone: self.zone() }
    }

    async fn begin_search(
        &self,
        open: &Open,
        listing: &mut Listing,
        pattern: &str,
    ) -> Result<(), Failed> {
        if let Some(id) = listing.id.take() {
            let _ = self.ask(open.tree.number, &frevo_smb1::find::close(id)).await;
        }
        *listing = Listing::default();
        let pattern = if pattern.is_empty() { "*" } else { pattern };
        let whole = format!("{}\\{pattern}", open.path().trim_end_matches('\\'));
        let search = self.search();
        let answer = match self.ask(open.tree.number, &search.first(&whole)?).await {
            // Servers without statuses of NT have one code for both.
            Err(Failed::Status(Status::OBJECT_NAME_NOT_FOUND)) => {
                return Err(Failed::Status(Status::NO_SUCH_FILE));
            }
            answer => answer?,
        };
        let (id, found) = search.first_found(answer.results())?;
        listing.begun = true;
        listing.id = Some(id);
        take(listing, found);
        Ok(())
    }

    /// Asks the server for more entries, unless some were written already: the client need not wait for
    /// them. Returns false if there are none to write now.
    async fn search_on(
        &self,
        open: &Open,
        listing: &mut Listing,
        writer: &DirectoryWriter<'_>,
    ) -> Result<bool, Failed> {
        let Some(id) = listing.id.filter(|_| writer.is_empty()) else { return Ok(false) };
        let search = self.search();
        let request = search.next(id, &listing.last)?;
        let found = match self.ask(open.tree.number, &request).await {
            Ok(answer) => search.next_found(answer.results())?,
            Err(Failed::Status(Status::NO_MORE_FILES)) => {
                Page { entries: Vec::new(), is_end: true }
            }
            Err(why) => return Err(why),
        };
        take(listing, found);
        Ok(!listing.waiting.is_empty())
    }
}

/// Takes the entries of an answer.
fn take(listing: &mut Listing, found: Page) {
    if let Some(last) = found.entries.last() {
        listing.last.clone_from(&last.name);
    }
    let room = ENTRIES_WAITING_MAX.saturating_sub(listing.waiting.len());
    listing.waiting.extend(found.entries.into_iter().take(room));
    if found.is_end {
        listing.id = None;
    }
}

/// Returns an entry in the form of SMB 2.
fn written(entry: &Entry) -> DirectoryEntry<&str> {
    let is_point = FileAttributes(entry.attributes).contains(FileAttributes::REPARSE_POINT);
    DirectoryEntry {
        name: &entry.name,
        creation_time: entry.created,
        last_access_time: entry.accessed,
        last_write_time: entry.written,
        change_time: entry.changed,
        end_of_file: entry.len,
        allocation_size: entry.allocation,
        attributes: attributes(entry.attributes, false),
        ea_size: if is_point { 0 } else { entry.ea_size },
        reparse_tag: if is_point { entry.ea_size } else { 0 },
        ..DirectoryEntry::default()
    }
}
