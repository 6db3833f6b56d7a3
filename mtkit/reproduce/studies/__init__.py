"""The studies: one public file is one table or figure of the chapter, see `mtkit.reproduce.study`."""
