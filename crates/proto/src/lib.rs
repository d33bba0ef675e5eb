//! What both roles of SMB 3.x share: framing, transforms, compounds, sequence window, credits.
