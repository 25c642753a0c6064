"""What users import: GBCM, fitting, requests and how they are carried out, mixtures, tables in and out."""
