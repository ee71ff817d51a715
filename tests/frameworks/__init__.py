"""Jobs that real frameworks have judged: how they are made, asked, recorded and compared with what dslint says."""
