"""Excel workbooks: input files as rows, and output files from rows; needs openpyxl."""
