"""Excel workbooks: input files as rows, output files from rows. Needs openpyxl."""
