//! Limits of namespaces.

/// Namespaces of one server.
pub const NAMESPACES: usize = 256;

/// Links of one namespace.
pub const LINKS: usize = 200_000;

/// Targets of one link. A referral with all of them is at most 56 KiB, the largest that Windows clients
/// ask for (MS-DFSC note 11), if their names are of usual length.
pub const TARGETS: usize = 64;

/// UTF-16 units of a link's path, and of a target.
pub const PATH_UNITS: usize = 1024;

/// Components of a link's path.
pub const COMPONENTS: usize = 64;

/// UTF-16 units of one component.
pub const COMPONENT_UNITS: usize = 255;

/// UTF-16 units of a comment.
pub const COMMENT_UNITS: usize = 256;

/// The greatest priority rank, MS-DFSC 3.2.5.5.
pub const RANK: u8 = 31;

/// Seconds for which a referral for a root is valid unless the namespace says otherwise, MS-DFSC note 4.
pub const ROOT_TTL_S: u32 = 300;

/// Seconds for which a referral for a link of Samba's is valid, as smbd has it: the host changes such links at any
/// time.
pub const SAMBA_LINK_TTL_S: u32 = 600;

/// Seconds for which a referral for a link is valid unless the link says otherwise, MS-DFSC note 4.
pub const LINK_TTL_S: u32 = 1_800;

/// Sites of one server.
pub const SITES: usize = 256;
